"""Places in the user's code: from a stack to the first line that is not a library's."""

import itertools
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CONTAINERS = os.path.join("torch", "nn", "modules", "container.py")
_LIBRARIES = os.path.dirname(os.__file__) + os.sep


def _is_library(filename: str) -> bool:
    return filename.startswith((_LIBRARIES, "<")) or "site-packages" in filename or "dist-packages" in filename


class Sites:
    """Gives each place a small number; a place is written to the recording when it is first met."""

    def __init__(self, recorder) -> None:
        self.recorder = recorder
        self.ids: "dict[tuple, int]" = {}
        self.numbers = itertools.count()
        self.library: "dict[str, bool]" = {}

    def here(self, depth: int = 1) -> int:
        """The id of the innermost user line that leads to the frame `depth` levels up.

        Falls back to the outermost library line when no user line is on the stack (`python -m package`).
        """
        return self._walk(sys._getframe(depth + 1))[0]

    def call(self, depth: int, thread: int) -> "tuple[int, object, tuple | None]":
        """The same as `here`, with where in that line's bytecode, and the library's function nearest to `depth` that
        lies between, as file and name; None where there is none.

        A thread of the autograd engine has no Python stack: there the line is the one that `thread` is in.
        """
        found = self._walk(sys._getframe(depth + 1))
        if found[0] < 0:
            frame = sys._current_frames().get(thread)
            return self._walk(frame) if frame is not None else found
        return found

    def stack(self, frame) -> "list[tuple[str, int, str]]":
        """File, line and function of the user's frames, the innermost first, and of torch's `Sequential`."""
        found = []
        while frame is not None:
            name = frame.f_code.co_filename
            if name.endswith(_CONTAINERS) or not self.is_library(name):
                found.append((name, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return found

    def at(self, code, line: int) -> int:
        """The id of a line of `code`, a function's."""
        return self._id(code.co_filename, line, code.co_name, None)

    def _walk(self, frame) -> "tuple[int, object, tuple | None]":
        via = None
        last = None
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if not filename.startswith(_HERE):
                if not self.is_library(filename):
                    number = self._id(filename, frame.f_lineno, code.co_name, via)
                    return number, (id(frame), frame.f_lasti), via
                if not filename.startswith("<"):
                    last = (filename, frame.f_lineno, code.co_name)
                    if via is None:
                        via = (filename, code.co_name)
            frame = frame.f_back
        return self._id(*last, via) if last else -1, None, via

    def is_library(self, filename: str) -> bool:
        """Whether a file is ours, torch's or anybody's but the user's."""
        library = self.library.get(filename)
        if library is None:
            library = self.library[filename] = filename.startswith(_HERE) or _is_library(filename)
        return library

    def _id(self, filename: str, line: int, function: str, via) -> int:
        key = (filename, line, function)
        known = self.ids.get(key)
        if known is None:
            number = next(self.numbers)
            known = self.ids.setdefault(key, number)
            if known != number:  # another thread was here just now
                return known
            by = {"via": f"{via[0]}:{via[1]}"} if via else {}
            self.recorder.record("site", id=known, file=filename, line=line, function=function, **by)
        return known
