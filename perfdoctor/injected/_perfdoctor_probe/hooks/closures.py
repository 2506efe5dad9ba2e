"""What an optimizer's `step` is given to call, and is no part of its update: the passes of LBFGS, and all of a training
step in Lightning."""

import functools
from _thread import get_ident

from ..changes import unseen
from ..timeline import OPTIMIZER, OTHER


def apart(loop, guarded):
    """Gives the arguments of a `step`, after its optimizer, with a closure that is other work of the loop's; None for
    those without one."""
    enter, leave = guarded("optimizer", _enter), guarded("optimizer", _leave)

    def called(closure, *args, **kwargs):
        line = loop.timeline
        if line.stack[-1] != OPTIMIZER or loop.thread != get_ident():
            return closure(*args, **kwargs)
        enter(line)
        try:
            return closure(*args, **kwargs)
        finally:
            leave(line)

    unseen(called)

    def given(args: tuple, kwargs: dict) -> "tuple[tuple, dict] | None":
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": functools.partial(called, kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], functools.partial(called, args[1]), *args[2:]), kwargs
        return None

    return given


def _enter(line) -> None:
    line.enter(OTHER)


def _leave(line) -> None:
    line.leave(OTHER)
