"""Functions of libraries that the user's code calls to read a file, and that read it anew in each call.

`np.load(path)`, `scipy.io.wavfile.read(path)`, `path.read_bytes()`: whatever was given the path of a file that there
is. An archive of NumPy's is read when one of its arrays is asked for, each time.
"""

import os
import sys

_NAMES = (str, os.PathLike)
_ARCHIVE = "NpzFile"


def reads(frame) -> bool:
    """Whether the call of a library's function that begins in this frame was given a file that it may read."""
    code = frame.f_code
    given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    if not given:
        return False
    if type(given[0]).__name__ == _ARCHIVE:
        return code.co_name == "__getitem__"
    return any(isinstance(one, _NAMES) and _is_file(one) for one in given)


def name(frame) -> str:
    """As the user knows it: `numpy.load`, `scipy.io.wavfile.read`, `NpzFile.__getitem__`."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    qualified = getattr(code, "co_qualname", code.co_name)
    if "." in qualified:
        return qualified
    package = module.partition(".")[0]
    public = getattr(sys.modules.get(package), code.co_name, None)
    return f"{package if getattr(public, '__code__', None) is code else module}.{code.co_name}"


def _is_file(path) -> bool:
    try:
        return os.path.isfile(path)
    except (OSError, ValueError):  # no name that a file could have
        return False
