"""Of modules that are worth running again after the last step: the dearest."""

LEAST = 0.1
"""Of the time in modules: less is not worth the timing."""
_KEPT = 2
"""Each is timed for up to a second."""


def dearest(found: "list[tuple]") -> "list[tuple]":
    """Facts, and what times them, of those that take most. `found`: the part of the time in modules, and these."""
    return [(facts, timed) for _, facts, timed in sorted(found, key=lambda one: -one[0])[:_KEPT]]
