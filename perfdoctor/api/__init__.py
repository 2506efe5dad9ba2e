"""All that a check author imports, as three namespaces; a new quantity is in them as soon as it is declared.

    from perfdoctor.api.causes import in_step, input_wait
    from perfdoctor.api.findings import Check, Outcome, clear, found
    from perfdoctor.api.quantities import Evidence, Missing, Step

A check is a module with a docstring of fixed sections and one attribute, `CHECK`.
"""
