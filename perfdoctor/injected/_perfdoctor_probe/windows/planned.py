"""How many steps the loop is going to take, where its `for` statements say so: `for step in range(STEPS)`."""

import ast
import sys

from .holdings import variables
from .loops import Loops

_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError)


def planned_steps(sites, step: int) -> int:
    """In all, by the loops around the line under way and how often they have gone round; 0 where one of them is not
    over a `range`, or its numbers are no variables. None of the job's code runs."""
    stack = []
    frame = sys._getframe(1)
    while frame is not None:
        if not sites.is_library(frame.f_code.co_filename):
            stack.append(frame)
        frame = frame.f_back
    finder = Loops([])
    rounds, done = 1, 0
    try:
        for frame in stack:
            code = frame.f_code
            for loop in finder.enclosing(code.co_filename, frame.f_lineno, code.co_name):
                numbers = _numbers(loop, frame)
                if numbers is None:
                    return 0
                length, at = numbers
                done += at * rounds
                rounds *= length
    except _UNREADABLE:
        return 0
    return round(step * rounds / (done + 1)) if rounds > 1 else 0


def _numbers(loop, frame) -> "tuple[int, int] | None":
    """Of a loop: how often it goes round, and how often it has."""
    call, target = getattr(loop, "iter", None), getattr(loop, "target", None)
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or call.keywords:
        return None
    if not isinstance(call.func, ast.Name) or call.func.id != "range":
        return None
    names = {target.id, *(word.id for word in call.args if isinstance(word, ast.Name))}
    known = variables(frame, names)
    words = [known.get(word.id) if isinstance(word, ast.Name) else getattr(word, "value", None) for word in call.args]
    at = known.get(target.id)
    if not all(type(word) is int for word in (*words, at)):
        return None
    rounds = range(*words)
    return (len(rounds), rounds.index(at)) if at in rounds else None
