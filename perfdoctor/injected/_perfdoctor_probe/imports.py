"""How long imports take until the loop begins: the outermost ones, on the thread that the process started with.

The interpreter looks `_find_and_load` up in its import system for each module that is not loaded yet, so a stand-in
there sees every import and nothing else. It leaves with the first step. Who waits for a module is told by it too.
"""

import sys
import time
from _thread import get_ident

_clock = time.perf_counter_ns
_SYSTEM = sys.modules["_frozen_importlib"]


class Imports:
    """The stand-in, and what it has timed."""

    def __init__(self) -> None:
        self.ns = 0
        self.inside = False
        self.original = None
        self.stand_in = None
        self.awaited: dict = {}
        """Name of a module -> what to call with it, once, when it has been imported."""

    def watch(self) -> None:
        """Time imports from now on."""
        home = get_ident()
        original = self.original = _SYSTEM._find_and_load

        def _find_and_load(*args):
            if self.inside or get_ident() != home:
                return original(*args)
            self.inside = True
            began = _clock()
            try:
                return original(*args)
            finally:
                self.inside = False
                self.ns += _clock() - began
                if self.awaited:
                    self._tell()

        # Python leaves the frames of its import system out of a traceback, and counts none for a warning, by file name.
        _find_and_load.__code__ = _find_and_load.__code__.replace(co_filename=original.__code__.co_filename)
        self.stand_in = _SYSTEM._find_and_load = _find_and_load

    def _tell(self) -> None:
        for name in [name for name in self.awaited if name in sys.modules]:
            try:
                self.awaited.pop(name)(sys.modules[name])
            except Exception:  # the job's import has gone well
                pass

    def stop(self) -> None:
        """The import system is as it was, but for what others have changed since."""
        if self.stand_in is not None and _SYSTEM._find_and_load is self.stand_in:
            _SYSTEM._find_and_load = self.original
        self.stand_in = None


IMPORTS = Imports()
"""Of this process: there is one import system."""
