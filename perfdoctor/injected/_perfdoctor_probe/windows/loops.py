"""The loop around a line that runs many times per step, and what its iterations need of each other."""

import ast
import itertools
import re
import sys

from ..sites import is_container, is_package
from . import dependence

_HEADER = 60
"""Characters kept of a loop's first line."""
_OF_BATCHES = re.compile(r"batch|loader|split|chunk", re.IGNORECASE)
UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError)
"""Of a file that is to be parsed."""


class Loops:
    """Finds loops in the files that stacks lead through; each is read once."""

    def __init__(self, boundary: "list[tuple[str, int, str]]", is_library=lambda file: False) -> None:
        """`boundary`: the stack at the end of a step; a loop around that runs once per step, and is none here.
        `is_library`: of files that stacks lead through, whose loops are not the user's to change."""
        self.is_library = is_library
        self.trees: dict = {}
        self.boundary = boundary
        self.steps: "set[tuple[str, int]] | None" = None

    def around(self, stack: "list[tuple[str, int, str]]") -> "dict | None":
        """The innermost loop of a step around a line; None without one, and where the source cannot be read.

        `stack`: file, line and function of the frames that lead to the line, the innermost first. `body` is the one in
        the loop's body, where the line is in what that calls.
        """
        try:
            return self._around(stack)
        except UNREADABLE:
            return None

    def enclosing(self, file: str, line: int, function: str) -> list:
        """The loops of a function around one of its lines, the innermost first; raises where it cannot be read."""
        return self._loops(file, line, function)[1]

    def body(self, stack: list) -> "tuple | None":
        """What `dependence.carried` asks for of the loop whose body has the innermost line of a stack in it; None
        without one in the step. Raises where the source cannot be read."""
        file, line, function = next(self._places(stack), ("", 0, ""))
        _, inside, known = self._known(file, line, function) if file else (None, [], ())
        if not inside or (file, inside[0].lineno) in self._steps():
            return None
        return inside[0], line, *known

    def _places(self, stack: list):
        # What the line itself calls lies inside of it: a `Sequential` makes no loop of the line that calls it.
        return itertools.dropwhile(lambda place: self._is_inside(place[0]), stack)

    def _steps(self) -> "set[tuple[str, int]]":
        if self.steps is None:
            self.steps = {
                (file, loop.lineno)
                for file, line, function in self.boundary
                for loop in self._loops(file, line, function)[1]
            }
        return self.steps

    def _known(self, file: str, line: int, function: str) -> tuple:
        """The function around a line, the loops whose bodies the line is in, and what is known of names there."""
        scope, loops = self._loops(file, line, function)
        modules, owners = self.trees[file][1:]
        inside = [loop for loop in loops if isinstance(loop, ast.While) or _body_starts(loop) <= line]
        return scope, inside, (modules, dependence.methods(owners.get(id(scope))))

    def _around(self, stack: list) -> "dict | None":
        steps = self._steps()
        state: "list[str]" = []
        places = list(self._places(stack))
        for depth, (file, line, function) in enumerate(places):
            scope, inside, (modules, of_class) = self._known(file, line, function)
            if inside:
                loop = inside[0]
                if (file, loop.lineno) in steps:
                    return None
                if self._is_inside(file):
                    return {"line": loop.lineno, "header": _header(loop), "carries": [], "by_library": True}
                every = dependence.carried(loop, line, modules, of_class)
                carries = state or every[:3]
                found = {"line": loop.lineno, "header": _header(loop), "carries": carries}
                if depth and not self.is_library(file):
                    found["body"] = file, line, function
                if _calls_element(loop):
                    found["of_layers"] = True
                if carries and not state:
                    found.update(self._across(places[depth:], every))
                return found
            if not state and isinstance(scope, ast.FunctionDef):
                # What an object keeps from call to call; a function's own names are new in each.
                found = dependence.carried(scope, line, modules, of_class)
                state = [name for name in found if name.startswith("self.")][:3]
        return None

    def _across(self, places: list, carries: "list[str]") -> dict:
        """Of the loops around one that carries these names, the innermost whose iterations do not need one another:
        in its function, else around the calls of that."""
        file, line, function = places[0]
        scope, inside, (modules, of_class) = self._known(file, line, function)
        for loop in inside[1:]:
            if (file, loop.lineno) in self._steps():
                return {}
            if not dependence.carried(loop, line, modules, of_class):
                return _told(loop, file, function)
        own = _sets(scope).issuperset(carries) and self._leaves_nothing(scope, line, modules, of_class)
        return self._calls_across(places[1:]) if own else {}

    def _calls_across(self, callers: list) -> dict:
        """Of the loops around the calls of a function that leaves nothing behind but its result, the innermost whose
        iterations do not need one another: so many calls could be one, for all of them. Loops over batches, which are
        as large as somebody chose, are left alone."""
        for file, line, function in callers:
            scope, inside, (modules, of_class) = self._known(file, line, function)
            if self._is_inside(file) or self.is_library(file):
                return {}
            for loop in inside:
                if (file, loop.lineno) in self._steps():
                    return {}
                if not dependence.carried(loop, line, modules, of_class):
                    told = _told(loop, file, function)
                    return {} if isinstance(loop, ast.While) or _OF_BATCHES.search(told["across"]) else told
            if not self._leaves_nothing(scope, line, modules, of_class):
                return {}
        return {}

    @staticmethod
    def _leaves_nothing(scope, line: int, modules: "set[str]", of_class: dict) -> bool:
        """Whether a call of a function needs nothing that the call before has left in what it is given, or in its
        object."""
        return isinstance(scope, ast.FunctionDef) and not dependence.carried(scope, line, modules, of_class)

    def _is_others(self, file: str) -> bool:
        return is_package(file) and self.is_library(file)

    def _is_inside(self, file: str) -> bool:
        return is_container(file) or self._is_others(file)

    def _loops(self, file: str, line: int, function: str) -> "tuple[ast.AST, list]":
        """The function that a line is in, and its loops around that line, the innermost first."""
        if file not in self.trees:
            with open(file, "rb") as source:
                tree = ast.parse(source.read())
            owners = {
                id(one): owner for owner in ast.walk(tree) if isinstance(owner, ast.ClassDef) for one in owner.body
            }
            self.trees[file] = tree, dependence.imported(tree), owners
        scope = self.trees[file][0]
        kinds = [ast.For, ast.AsyncFor, ast.While]
        # Before Python 3.12 a comprehension has a frame of its own.
        if sys.version_info >= (3, 12) or function.endswith(("comp>", "genexpr>")):
            kinds += dependence.COMPREHENSIONS
        found: list = []
        nodes = list(ast.iter_child_nodes(scope))
        while nodes:
            node = nodes.pop()
            if getattr(node, "lineno", line) <= line <= getattr(node, "end_lineno", line):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    scope, found = node, []
                elif isinstance(node, tuple(kinds)) and line <= _body_ends(node):
                    found.append(node)
                nodes.extend(ast.iter_child_nodes(node))
        return scope, sorted(found, key=lambda loop: (-loop.lineno, -loop.col_offset))


def _told(loop, file: str, function: str) -> dict:
    """A loop around whose iterations do not need one another."""
    return {"across": _header(loop), "across_at": (file, loop.lineno, function)}


def _sets(scope) -> "set[str]":
    """Names that a function makes something of its own: others it was given, and changes."""
    names = (node for node in ast.walk(scope) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _body_starts(loop) -> int:
    return loop.lineno if isinstance(loop, dependence.COMPREHENSIONS) else loop.body[0].lineno


def _body_ends(loop) -> int:
    return loop.end_lineno if isinstance(loop, dependence.COMPREHENSIONS) else loop.body[-1].end_lineno


def _calls_element(loop) -> bool:
    """Whether each iteration calls what it is about: layers or functions, each with code of its own, are no elements.
    Of `for name, layer in layers`, the layer."""
    targets = [one.target for one in getattr(loop, "generators", [loop]) if hasattr(one, "target")]
    names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return any(isinstance(one, ast.Call) and getattr(one.func, "id", "") in names for one in ast.walk(loop))


def _header(loop) -> str:
    if isinstance(loop, ast.While):
        text = f"while {ast.unparse(loop.test)}"
    else:
        (first, *_) = getattr(loop, "generators", [loop])
        text = f"for {ast.unparse(first.target)} in {ast.unparse(first.iter)}"
    return text if len(text) <= _HEADER else text[: _HEADER - 3] + "..."
