"""Where something that a call is given was decided, by the job's source: followed from the call through names, the
parameters of the functions that led to it, and fields of configurations, to a constant."""

import ast
import functools
import types

from ..script import function_at, given, parsed, read
from ..sites import users_modules
from .source import called, nodes_within

_LARGEST = 1 << 18
"""Bytes of all files that are parsed."""
_MOST = 12
"""Names followed."""
_SELF = ("self", "cls")
_PLAIN = ("int", "min", "max", "bool")
"""Functions whose result is their argument, more or less."""
_HOLDERS = ("dict", "update", "replace", "SimpleNamespace", "Namespace", "set_defaults")
"""Functions that keep what they are given under the names of their keywords; so may the job's own."""
_PARAMETER, _FIELD, _GIVEN = range(3)
"""What gives a name its value: the default of a parameter; that of a class or an option; a call or an assignment."""


class Sources:
    """The job's own files, parsed when one is asked for."""

    def __init__(self, is_library, more=()) -> None:
        """`more`: files of the job's beside those of its modules. A script that has ended is no module's any more."""
        self.is_library = is_library
        self.more = more
        self.left = _LARGEST

    @functools.cached_property
    def trees(self) -> dict:
        """By file."""
        files = [vars(module)["__file__"] for module in users_modules(self.is_library).values()]
        return {file: tree for file in dict.fromkeys((*files, *self.more)) if (tree := self._parsed(file)) is not None}

    @functools.cached_property
    def gives(self) -> "list[tuple]":
        """File, rank, name and value of all that is given to a name."""
        nodes = [(file, node) for file, tree in self.trees.items() for node in ast.walk(tree)]
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        holders = {*_HOLDERS, *(node.name for _, node in nodes if isinstance(node, kinds))}
        return [(file, *one) for file, node in nodes for one in _gives(node, holders)]

    def _parsed(self, file: str):
        text = read(file, self.left) if file.endswith(".py") else b""
        self.left -= len(text)
        return parsed(text) if text else None

    def fields(self, name: str) -> "list[tuple]":
        """Rank, file and value of all that is given to this name."""
        return [(rank, file, value) for file, rank, word, value in self.gives if word == name]


def decided_at(callers: "list[tuple]", names: tuple, word: str, place: int, value, sources: Sources) -> "tuple | None":
    """The place, as for `Sites.number`, of the constant that made the argument `word` of a call what it is: `value`.

    `callers`: code and line of the user's functions that led to the call, the innermost first. `names`: of what was
    called, whose argument it is as number `place` from 0 on. None where it cannot be followed, or two places would do.
    """
    trail = _Trail(callers, value, sources)
    trail.argument(word, place, names)
    trail.to_the_end()
    return None if trail.node is None else trail.place()


def passed_at(callers: "list[tuple]", names: tuple, word: str, place: int, sources: Sources) -> "tuple | None":
    """The place of what the call itself gives as that argument, or the options that it is given do; as for
    `decided_at`, but not followed any further."""
    trail = _Trail(callers, None, sources)
    trail.argument(word, place, names)
    if trail.node is None or not hasattr(trail.node, "lineno"):
        given = [one for one in sources.fields(word) if one[0] == _GIVEN] if trail.is_in_options else []
        if len(given) != 1:
            return None
        _, trail.file, trail.node = given[0]
    return trail.place()


def settled(sources: Sources, file: str, node) -> "tuple | None":
    """The file and the constant that something in a file comes from, whatever it is; None where it cannot be followed,
    or two would do."""
    if file not in sources.trees:
        return None
    here = types.SimpleNamespace(co_filename=file, co_name="")
    trail = _Trail([(here, node.lineno)], None, sources)
    trail.file, trail.node, trail.is_computed = file, node, True
    trail.to_the_end()
    return None if trail.node is None else (trail.file, trail.node)


class _Trail:
    """The expression under way, and where it stands."""

    def __init__(self, callers: "list[tuple]", value, sources: Sources) -> None:
        self.callers, self.value, self.sources = callers, value, sources
        self.level = 0
        """Of `callers`: whose names are meant."""
        self.file, self.node = "", None
        self.is_computed = False
        """Whether the value is computed from what is followed now."""
        self.is_in_options = False
        """Whether the call was given it as one of `**options`."""

    def place(self) -> tuple:
        """Of the expression."""
        line = self.node.lineno
        return self.file, line, function_at(self.sources.trees[self.file], line), None

    def to_the_end(self) -> None:
        """On to a constant that fits; to nothing without one."""
        for _ in range(_MOST):
            if self.node is None or isinstance(self.node, ast.Constant):
                break
            self._follow()
        if not self._fits(self.node):
            self.node = None

    def _fits(self, node) -> bool:
        """Whether it is what was given."""
        if not isinstance(node, ast.Constant):
            return False
        return self.is_computed or (type(node.value) is type(self.value) and node.value == self.value)

    def argument(self, word: str, place: int, names: tuple) -> None:
        """On to what the call in the function of this level is given, of a function that may have these names."""
        self.file, self.node = "", None
        if self.level >= len(self.callers):
            return
        code, line = self.callers[self.level]
        tree = self.sources.trees.get(code.co_filename)
        nodes = ast.walk(tree) if tree is not None else ()
        calls = [node for node in nodes if isinstance(node, ast.Call) and _spans(node, line)]
        calls.sort(key=lambda node: (called(node) in names, node.lineno), reverse=True)
        for call in calls:
            named = [one.value for one in call.keywords if one.arg == word]
            counts = called(call) in names and not any(isinstance(one, ast.Starred) for one in call.args)
            plain = call.args[place : place + 1] if counts else []
            if named or plain:
                self.file, self.node = code.co_filename, (named or plain)[0]
                return
        self.is_in_options = any(one.arg is None for call in calls for one in call.keywords)
        if self.is_in_options:
            self._field(word)

    def _follow(self) -> None:
        """One step on from a name, an attribute or something that is computed from one."""
        node, self.node = self.node, None
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, (ast.Attribute, ast.Subscript)) or called(node) == "get":
            self._field(_renamed(node))
        else:
            read = _read(node)
            if len(read) == 1:
                self.is_computed, self.node = True, read[0]

    def _name(self, node) -> None:
        tree, within = self.sources.trees[self.file], self._function()
        for scope in (within, tree):
            stored, values = (0, []) if scope is None else _assigned(scope, node.id)
            if stored:
                self.node = values[0] if stored == len(values) == 1 else None
                self.level = self.level if scope is within else len(self.callers)
                return
            if scope is not None and scope is within and node.id in _parameters(within):
                self._parameter(within, node.id)
                return
        self._field(node.id)

    def _function(self):
        """The innermost function around the expression's place, while it is one that led to the call."""
        code, line = self.callers[self.level] if self.level < len(self.callers) else (None, 0)
        if code is None or self.file != code.co_filename:
            return None
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        around = [
            one for one in ast.walk(self.sources.trees[self.file]) if isinstance(one, kinds) and _spans(one, line)
        ]
        return max(around, key=lambda one: one.lineno, default=None)

    def _parameter(self, function, name: str) -> None:
        """On to what the function was given, else to its default."""
        names = _parameters(function)
        place = names.index(name) - (names[0] in _SELF)
        (code, _), file = self.callers[self.level], self.file
        outer = getattr(code, "co_qualname", code.co_name).split(".")
        self.level += 1
        self.argument(name, place, tuple(outer[-2:]))
        if self.node is None:
            self.file, self.node = file, _defaults(function).get(name)

    def _field(self, name: "str | None") -> None:
        """On to the one thing that a field of this name is given."""
        found = [] if name is None else self.sources.fields(name)
        constants = [one for one in found if self._fits(one[2])]
        best = [one for one in constants if one[0] == max(rank for rank, *_ in constants)]
        self.level = len(self.callers)
        if len(best) == 1:
            _, self.file, self.node = best[0]
        elif not constants:
            # `self.workers = n_workers`: the same under another name.
            others = {_renamed(value) for _, _, value in found} - {None, name}
            if len(others) == 1:
                self.file, self.node = found[0][1], ast.Attribute(attr=others.pop())


def _spans(node, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _gives(node, holders: "set[str]") -> "list[tuple]":
    """Rank, name and value of what this part of a source gives."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [(_PARAMETER, *one) for one in _defaults(node).items()]
    if isinstance(node, (ast.Module, ast.ClassDef)):
        named = [pair for one in node.body if isinstance(one, ast.Assign) for pair in _named(one)]
        return [(_FIELD, *one) for one in (*given(node), *named)]
    if called(node) == "add_argument":
        names = [one.value.lstrip("-").replace("-", "_") for one in node.args if _is_text(one)]
        return [(_FIELD, name, one.value) for name in names for one in node.keywords if one.arg == "default"]
    if isinstance(node, ast.Call) and called(node) not in holders:
        return []
    return [(_GIVEN, *one) for one in given(node)]


def _is_text(node) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _renamed(node) -> "str | None":
    """The last name of `workers`, `config.workers`, `config["workers"]` and `config.get("workers", 0)`."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return getattr(node, "id", getattr(node, "attr", None))
    words = [node.slice] if isinstance(node, ast.Subscript) else node.args[:1] if called(node) == "get" else []
    return next((one.value for one in words if _is_text(one)), None)


def _assigned(scope, name: str) -> "tuple[int, list]":
    """How often it is stored to in a function or module, and what is assigned to it by itself."""
    stored, values = 0, []
    for node in nodes_within(scope):
        stored += isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            values += [value for word, value in _named(node) if word == name]
    return stored, values


def _named(node) -> "list[tuple]":
    """Names and what an assignment gives each of them by itself, side by side too: `BATCH, LR = 16, 0.1`."""
    found = []
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        sides = [getattr(one, "elts", None) for one in (target, node.value)]
        if isinstance(target, ast.Name):
            found.append((target.id, node.value))
        elif (
            all(sides) and len(sides[0]) == len(sides[1]) and not any(isinstance(one, ast.Starred) for one in sides[0])
        ):
            found += [(one.id, value) for one, value in zip(*sides) if isinstance(one, ast.Name)]
    return found


def _parameters(function) -> "list[str]":
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _defaults(function) -> dict:
    """By parameter."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    found = dict(zip((one.arg for one in plain[len(plain) - len(arguments.defaults) :]), arguments.defaults))
    found.update(
        (one.arg, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value is not None
    )
    return found


def _read(node) -> list:
    """Names and fields that an expression is computed from, as far as plainly."""
    if _renamed(node) is not None:
        return [node]
    parts = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        parts = node.args if called(node) in _PLAIN else ()
    return [name for part in parts if isinstance(part, ast.expr) for name in _read(part)]
