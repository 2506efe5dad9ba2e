"""Functions of libraries that the user's code calls to read a file, and that read it anew in each call.

`np.load(path)`, `scipy.io.wavfile.read(path)`, `path.read_bytes()`, `json.load(file)`: whatever was given the path of
a file that there is, or an open one; and an image of PIL's that is decoded by what is asked of it first. An archive
that is kept open is read when one of its members is asked for, each time. None of the job's code runs for it.
"""

import os
import pathlib
import stat
import sys

from .content import FILES, unread_picture

_ARCHIVES = {"NpzFile": "__getitem__", "ZipFile": "read"}
"""Classes, and the method that reads a member."""
_DECODES = {"Image.__array_interface__": "Image.load"}
"""What `np.asarray(image)` asks for."""
WHOLE = 1 << 10
"""As telling as a file is whose content cannot be compared: a table, an image, what holds more than can be seen."""


def reads(frame) -> bool:
    """Whether the call of a library's function that begins in this frame was given a file that it may read."""
    code, named = frame.f_code, frame.f_locals
    given = [named.get(name) for name in code.co_varnames[: code.co_argcount]]
    if given and type(given[0]).__name__ in _ARCHIVES:
        return code.co_name == _ARCHIVES[type(given[0]).__name__]
    return any(_version(one) is not None for one in given)


def versions(given: list) -> list:
    """Of the files that these lead to: what they hold is the same while these are."""
    return [version for one in given if (version := _version(one)) is not None]


def _version(one) -> "tuple[int, int] | None":
    path = one if isinstance(one, (str, pathlib.PurePath)) else unread_picture(one)
    if type(one) not in FILES and not path:
        return None
    try:
        found = os.stat(path or one.fileno())
    except (OSError, ValueError):  # no file, no name that one could have, or closed
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def name(frame) -> str:
    """As the user knows it: `numpy.load`, `scipy.io.wavfile.read`, `NpzFile.__getitem__`; of what is made its class."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    qualified = getattr(code, "co_qualname", code.co_name)
    if "." in qualified:
        return _DECODES.get(qualified, qualified.removesuffix(".__init__"))
    package = module.partition(".")[0]
    # Not by `getattr`: modules that import their parts when they are asked for would do so.
    public = vars(sys.modules[package]).get(code.co_name) if package in sys.modules else None
    return f"{package if getattr(public, '__code__', None) is code else module}.{code.co_name}"
