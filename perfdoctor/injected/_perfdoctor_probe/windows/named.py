"""What an object's attribute is, without running any code of its class."""


def attribute(one, name: str):
    """Kept by the object, or else by its class; None where neither has it, and a property is not asked."""
    is_class = isinstance(one, type)
    try:
        kept = {} if is_class else object.__getattribute__(one, "__dict__")
    except AttributeError:  # it has slots
        kept = {}
    if name in kept:
        return kept[name]
    above = type.__dict__["__mro__"].__get__(one if is_class else type(one))
    return next((vars(kind)[name] for kind in above if name in vars(kind)), None)
