"""Whether the job trains on once the loop under way is over: a second fit, what follows a warm-up. Nobody watches that
where perfdoctor ends the job. Read from the source of the functions under way; what only an `if` leads to is not
counted."""

import ast
import os
import sys

from . import trainer_plans
from .source import called, function_node, parsed

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OF_TRAINERS = ("fit", "train")
"""Only where something of a trainer's is called so: a regression is fitted too, and a mode set."""
_DEEPEST = 3
"""Functions of the job's that call each other, until one trains."""
_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.If)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def trains_afterwards(sites) -> int:
    """The first line that does, as a site; -1 where none was seen. What follows within the outermost loop is a part of
    it."""
    for code, over in _from_the_loop_on(sites, sys._getframe(1)):
        line = _first_to_train(code, over)
        if line:
            return sites.at(code, line)
    return -1


def _from_the_loop_on(sites, frame) -> "list[tuple]":
    """The functions under way that hold the outermost loop, or lead to it, the innermost first, each with the last line
    of what it is about there. A trainer's loop is the outermost; none where there is no loop."""
    found: "list[tuple]" = []
    in_loop = False
    while frame is not None:
        file = frame.f_code.co_filename
        if trainer_plans.is_loop(file):
            found, in_loop = [], True
        elif not file.startswith((_OWN, "<")) and not sites.is_library(file):
            over, is_loop = _under_way(frame.f_code, frame.f_lineno)
            if is_loop:
                found, in_loop = [], True
            found.append((frame.f_code, over))
        frame = frame.f_back
    return found if in_loop else []


def _under_way(code, line: int) -> "tuple[int, bool]":
    """The last line of the outermost loop of a function around one of its lines, or of the statement; and whether it is
    a loop."""
    scope = _scope(code)
    around = [node for node in ast.walk(scope) if isinstance(node, ast.stmt) and node is not scope] if scope else []
    around = [node for node in around if node.lineno <= line <= node.end_lineno]
    loops = [node for node in around if isinstance(node, _LOOPS)]
    over = loops or [node for node in around if not hasattr(node, "body")]
    return max((node.end_lineno for node in over), default=line), bool(loops)


def _scope(code):
    return parsed(code.co_filename) if code.co_name == "<module>" else function_node(code)


def _first_to_train(code, after: int) -> int:
    """The first line of a function, behind another one, that trains; 0 where none does."""
    scope, tree = _scope(code), parsed(code.co_filename)
    calls = (node for node in (_nodes(scope) if scope else ()) if isinstance(node, ast.Call) and node.lineno > after)
    return min((node.lineno for node in calls if _trains(node, tree, _DEEPEST)), default=0)


def _nodes(scope):
    """Of its own statements, in no order; not what is behind an `if`, but for that of a script."""
    waiting = list(scope.body)
    while waiting:
        node = waiting.pop()
        is_main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        if not isinstance(node, _APART) or is_main:
            yield node
            waiting += ast.iter_child_nodes(node)


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
        for node in _nodes(function)
    )


def _owner(call) -> str:
    """The name of what a method is called of: `trainer` of `self.trainer.fit()`."""
    value = getattr(call.func, "value", None)
    return called(value) or getattr(value, "id", getattr(value, "attr", ""))
