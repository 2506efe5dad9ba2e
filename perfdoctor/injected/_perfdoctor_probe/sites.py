"""Places in the user's code: from a stack to the innermost line that is not a library's.

Where all of a job's code is installed (`python -m package`, a console script, a thread or worker of such a job), the
package that stands outermost on the stack is the user's: that is the one that was asked to run. Its own frames count
then, in all of the process. Packages that run other people's code (trainers, clusters, command lines) are never it.
"""

import itertools
import os
import sys
import weakref

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CONTAINERS = os.path.join("torch", "nn", "modules", "container.py")
_LIBRARIES = os.path.dirname(os.__file__) + os.sep
_SCRIPTS = os.path.dirname(sys.executable or os.sep) + os.sep
_PACKAGES = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
_RUNNERS = frozenset(
    "torch functorch lightning lightning_fabric pytorch_lightning transformers accelerate deepspeed ray pyspark ignite "
    "fastai composer joblib cloudpickle hydra click typer fire absl jsonargparse tyro IPython ipykernel pytest _pytest "
    "pluggy coverage debugpy".split()
)
"""Packages that call what is the user's, so that they stand outside of it on a stack."""
_CALLERS = 32
"""Functions that led to a call, of which it may be looked up what decided what it was given."""


def _installed(filename: str) -> str:
    """Where an installed file lies below the folder of packages; "" for any other file."""
    for folder in _PACKAGES:
        if folder in filename:
            return filename.rpartition(folder)[2]
    return ""


def is_container(filename: str) -> bool:
    """Whether it is torch's file of modules that call others, such as `Sequential`."""
    return filename.endswith(_CONTAINERS)


def is_package(filename: str) -> bool:
    """Whether it is somebody's installed file, and neither torch's nor the user's."""
    return _installed(filename).partition(os.sep)[0] not in ("", "torch")


def _is_library(filename: str) -> bool:
    known = filename.startswith((_LIBRARIES, _HERE, "<")) or bool(_installed(filename))
    return known or _is_script(filename) or _is_written_by_library(filename)


def _is_script(filename: str) -> bool:
    """Whether an installer wrote it to start a package: `bin/torchrun`, without a suffix."""
    return filename.startswith(_SCRIPTS) and not filename.endswith(".py")


def _is_written_by_library(filename: str) -> bool:
    """Whether an installed package made it while it ran, in the directory for temporary files: torch.compile its code,
    torch_geometric modules of its own, `torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_0agscagq.py`."""
    if f"{os.sep}torchinductor_" in filename:
        return True
    package, _, rest = os.path.basename(filename).partition(".")
    module = sys.modules.get(package) if rest.count(".") else None
    return module is not None and bool(_installed(vars(module).get("__file__") or ""))


def _application(filename: str) -> str:
    """The package that an installed file belongs to, as a folder or the file itself; "" for one that runs others."""
    inside = _installed(filename)
    package, _, rest = inside.partition(os.sep)
    if not inside or package.partition(".")[0] in _RUNNERS:
        return ""
    return filename[: len(filename) - len(rest)]


def users_frame(frame, is_library):
    """The innermost frame of the user's, from this one outwards; None without one."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def callers(frame, is_library) -> "list[tuple]":
    """Code and line of the user's functions on a stack, the innermost first."""
    found = []
    while frame is not None and len(found) < _CALLERS:
        if not is_library(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def users_modules(is_library) -> dict:
    """Modules of the user's by name, the script first."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if type(module) is type(sys) else None
        if type(file) is str and not is_library(file):
            found[name] = module
    return found


class Sites:
    """Gives each place a small number; a place is written to the recording when it is first met."""

    def __init__(self, recorder) -> None:
        self.recorder = recorder
        self.ids: "dict[tuple, int]" = {}
        self.numbers = itertools.count()
        self.direct: "set[int]" = set()
        """Ids of lines that no library has been seen under."""
        self.library: "dict[str, bool]" = {}
        self.adopted = ""
        """The installed package whose code is the user's."""
        self.own = False
        """Whether a line of the user's has been met."""
        self.makers: "dict[int, tuple]" = {}
        """Of modules and optimizers, by `id()`: a weak reference, and the place that made it."""
        self.makings: "dict[type, set[int]]" = {}
        """The code of a class's `__init__`, and of those above it, by `id()`."""

    def here(self, depth: int = 1) -> int:
        """The id of the innermost user line that leads to the frame `depth` levels up.

        Falls back to the outermost library line when no user line is on the stack; -1 where that is Python's own.
        """
        return self.number(self.place(depth + 1))

    def place(self, depth: int = 1) -> "tuple | None":
        """The same as something that a forked process can still make an id of, with `number`."""
        return self._find(sys._getframe(depth + 1))[0]

    def call(self, depth: int, thread: int) -> "tuple[int, object, tuple | None]":
        """The same as `here`, with where in that line's bytecode, and the library's function nearest to `depth` that
        lies between, as file and name; None where there is none.

        A thread of the autograd engine has no Python stack: there the line is the one that `thread` is in.
        """
        place, where, via = self._find(sys._getframe(depth + 1))
        if place is None:
            frame = sys._current_frames().get(thread)
            if frame is not None:
                place, where, via = self._find(frame)
        return self.number(place), where, via

    def is_in_library(self, frame, but: "tuple[str, ...]") -> bool:
        """Whether the function that leads to `frame` is a library's, apart from files of torch's whose names end so."""
        while frame is not None and frame.f_code.co_filename.startswith((_HERE, "<")):
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename.endswith(but):
            frame = frame.f_back
        return frame is not None and self.is_library(frame.f_code.co_filename)

    def stack(self, frame, packages: bool = False) -> "list[tuple[str, int, str]]":
        """File, line and function of the user's frames, the innermost first, and of torch's `Sequential`; with
        `packages` those of installed packages too, torch's own left out."""
        found = []
        while frame is not None:
            name = frame.f_code.co_filename
            if is_container(name) or not self.is_library(name) or (packages and is_package(name)):
                found.append((name, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return found

    def asked_in(self, frame, functions: set) -> "tuple | None":
        """The line of one of these functions, by their code, that leads to `frame` through the user's own alone; None
        where there is none, or a library lies between."""
        while frame is not None and self.is_library(frame.f_code.co_filename):
            frame = frame.f_back
        while frame is not None and not self.is_library(frame.f_code.co_filename):
            code = frame.f_code
            if code in functions:
                return code.co_filename, frame.f_lineno, code.co_name, None
            frame = frame.f_back
        return None

    def at(self, code, line: int) -> int:
        """The id of a line of `code`, a function's."""
        return self.number((code.co_filename, line, code.co_name, None))

    def position(self, number: int) -> "tuple[str, int]":
        """File and line of an id."""
        return next((file, line) for (file, line, _), known in list(self.ids.items()) if known == number)

    def note_made(self, made) -> None:
        """An object is being made: its class's `__init__` leads to the caller."""
        kind = type(made)
        makings = self.makings.get(kind)
        if makings is None:
            found = (getattr(vars(base).get("__init__"), "__code__", None) for base in kind.__mro__)
            makings = self.makings[kind] = {id(code) for code in found if code is not None}
        frame = sys._getframe(1)
        remaining = set(makings)
        # Each once: what makes an object may itself be an `__init__` of the same class.
        while frame is not None and (id(frame.f_code) in remaining or frame.f_code.co_filename.startswith(_HERE)):
            remaining.discard(id(frame.f_code))
            frame = frame.f_back
        self.makers[id(made)] = weakref.ref(made), self._find(frame)[0]

    def made_at(self, made) -> int:
        """The id of the line that made a module or an optimizer; -1 for a copy, which nothing made."""
        known = self.makers.get(id(made))
        return self.number(known[1]) if known is not None and known[0]() is made else -1

    def _find(self, start) -> "tuple[tuple | None, object, tuple | None]":
        via = last = None
        application = ""
        frame = start
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if not filename.startswith(_HERE):
                if not self.is_library(filename):
                    self.own = True
                    return (filename, frame.f_lineno, code.co_name, via), (id(frame), frame.f_lasti), via
                if not filename.startswith("<"):
                    if via is None:
                        via = (filename, code.co_name)
                    if _installed(filename) or not filename.startswith(_LIBRARIES):
                        last = (filename, frame.f_lineno, code.co_name)
                        application = _application(filename) or application
            frame = frame.f_back
        if application and not self.own:
            self.adopted = application
            self.library.clear()
            return self._find(start)
        return ((*last, via) if last else None), None, via

    def is_library(self, filename: str) -> bool:
        """Whether a file is ours, torch's or anybody's but the user's."""
        library = self.library.get(filename)
        if library is None:
            adopted = self.adopted and filename.startswith(self.adopted)
            library = self.library[filename] = not adopted and _is_library(filename)
        return library

    def number(self, place: "tuple | None") -> int:
        """The id of a place; -1 for none. It is written when it is first met, and once more when a library is first
        seen between the line and its work."""
        if place is None:
            return -1
        filename, line, function, via = place
        key = (filename, line, function)
        known = self.ids.get(key)
        if known is None:
            number = next(self.numbers)
            known = self.ids.setdefault(key, number)
            if known != number:  # another thread was here just now
                return known
            if not via:
                self.direct.add(known)
        elif via and known in self.direct:
            self.direct.discard(known)
        else:
            return known
        by = {"via": f"{via[0]}:{via[1]}"} if via else {}
        self.recorder.record("site", id=known, file=filename, line=line, function=function, **by)
        return known
