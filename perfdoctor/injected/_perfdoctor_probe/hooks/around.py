"""Functions of the job's libraries with something of ours before or after each call."""

import functools

SELF = slice(1)
"""Of the arguments: the object whose method it is."""


def announced(original, began, arguments=slice(0)):
    """`original`, and `began` before each call, with these of its positional arguments."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        began(*args[arguments])
        return original(*args, **kwargs)

    return call


def followed(original, done, arguments=slice(0)):
    """`original`, and `done` after each call that returned, with these of its arguments."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        done(*(*args, *kwargs.values())[arguments])
        return result

    return call


def switching_off(original, noted):
    """A stand-in for `torch.backends.mkldnn.flags`, or cuDNN's, and `noted` before each call that switches the library
    off, which is the default of their `enabled`."""

    @functools.wraps(original)
    def flags(*args, **kwargs):
        if not (args[0] if args else kwargs.get("enabled", False)):
            noted()
        return original(*args, **kwargs)

    return flags
