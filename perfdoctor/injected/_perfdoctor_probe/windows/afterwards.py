"""Whether the job trains on once the loop under way is over: a second fit, what follows a warm-up. Nobody watches that
where perfdoctor ends the job. Read from the source of the functions under way; what only an `if` leads to is not
counted."""

import ast
import os
import sys

from . import trainer_plans
from .loops import UNREADABLE, Loops
from .source import called, function_node, nodes_within, parsed

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OF_TRAINERS = ("fit", "train")
"""Only where something of a trainer's is called so: a regression is fitted too, and a mode set."""
_DEEPEST = 3
"""Functions of the job's that call each other, until one trains."""


def trains_afterwards(sites) -> int:
    """The first line that does, as a site; -1 where none was seen. What follows within the outermost loop is a part of
    it."""
    try:
        under_way = _from_the_loop_on(sites, sys._getframe(1))
    except UNREADABLE:
        return -1
    for code, over in under_way:
        line = _first_to_train(code, over)
        if line:
            return sites.at(code, line)
    return -1


def _from_the_loop_on(sites, frame) -> "list[tuple]":
    """The functions under way that hold the outermost loop, or lead to it, the innermost first, each with the last line
    of its own outermost loop, else the one that it is at. A trainer's loop is the outermost; none where there is no
    loop."""
    finder = Loops([])
    found: "list[tuple]" = []
    in_loop = False
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        if trainer_plans.is_loop(code.co_filename):
            found, in_loop = [], True
        elif not code.co_filename.startswith((_OWN, "<")) and not sites.is_library(code.co_filename):
            loops = finder.enclosing(code.co_filename, line, code.co_name)
            if loops:
                found, in_loop = [], True
            found.append((code, loops[-1].end_lineno if loops else line))
        frame = frame.f_back
    return found if in_loop else []


def _first_to_train(code, after: int) -> int:
    """The first line of a function, behind another one, that trains; 0 where none does."""
    tree = parsed(code.co_filename)
    scope = tree if code.co_name == "<module>" else function_node(code)
    calls = (
        node
        for node in (nodes_within(scope, _is_uncertain) if scope else ())
        if isinstance(node, ast.Call) and node.lineno > after
    )
    return min((node.lineno for node in calls if _trains(node, tree, _DEEPEST)), default=0)


def _is_uncertain(node) -> bool:
    """What an `if` leads to, but for that of a script."""
    return isinstance(node, ast.If) and "__name__" not in ast.unparse(node.test)


def _trains(call, tree, depth: int) -> bool:
    name = called(call)
    if name == "backward":
        return True
    if name in _OF_TRAINERS and "trainer" in _owner(call).lower():
        return True
    if not depth:
        return False
    defined = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)
    return any(
        isinstance(node, ast.Call) and _trains(node, tree, depth - 1)
        for function in defined
        for node in nodes_within(function, _is_uncertain)
    )


def _owner(call) -> str:
    """The name of what a method is called of: `trainer` of `self.trainer.fit()`."""
    value = getattr(call.func, "value", None)
    return called(value) or getattr(value, "id", getattr(value, "attr", ""))
