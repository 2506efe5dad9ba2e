"""What was put in the place of what in libraries, so that it can be put back."""

import os
import sys
import types

_ABSENT = object()
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PASSED_OVER = " (importlib._bootstrap)"
"""Python counts no frame of its import system when a warning is to name the line that called, and knows those frames
by two words in the name of their file."""
_CALL = (lambda function, argument: function(argument)).__code__
"""All of it on its first line."""


def unseen(function):
    """`function`, if it is ours, such that a warning of what it calls names the line that it would without us."""
    inner = getattr(function, "__func__", function)
    if isinstance(inner, types.FunctionType) and inner.__code__.co_filename.startswith(_HERE):
        file = inner.__code__.co_filename + _PASSED_OVER
        inner.__code__ = inner.__code__.replace(co_filename=file)
        _tell_inspect(file, inner.__module__)
    return function


def _tell_inspect(file: str, module: str) -> None:
    """Whose file it is, by the cache of `inspect`: of a file that is not there it would look through all modules, for
    each of our frames in each `inspect.stack()` of the job's (10 ms a step in a program of 6)."""
    known = getattr(sys.modules.get("inspect"), "modulesbyfile", None)
    if known is not None:
        known[os.path.normcase(file)] = module


def as_its_caller(function, argument):
    """`function(argument)` for whoever called our stand-in of it, written in C, whose warnings name the line that is
    running and pass over none: here that line is the caller's."""
    caller = sys._getframe(2)
    code = _CALL.replace(co_filename=caller.f_code.co_filename, co_firstlineno=caller.f_lineno)
    return types.FunctionType(code, caller.f_globals)(function, argument)


class Changes:
    """Stand-ins in place."""

    def __init__(self) -> None:
        self.made: "list[tuple]" = []
        self.undone: "list[tuple]" = []

    def put(self, owner, name: str, stand_in, part: str = "") -> None:
        """Have `owner.name` be `stand_in`."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, unseen(stand_in))
        self.made.append((part, owner, name, vars(owner)[name], before))

    def when_undone(self, undo, part: str = "") -> None:
        """Call `undo` when the part is taken back."""
        self.undone.append((part, undo))

    def take_back(self, kept: "tuple | set" = ()) -> None:
        """Everything is as before, but for the `kept` parts, and for what others have changed since."""
        for part, owner, name, ours, before in reversed(self.made):
            if part in kept or vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for part, undo in self.undone:
            if part not in kept:
                undo()
