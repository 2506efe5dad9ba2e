"""Where a function that makes batches or samples pads them to a length that none of them has said: by its source."""

import ast
import functools

from .source import called, function_node, nodes_within

_MAKERS = frozenset("zeros ones full empty new_zeros new_ones new_full new_empty".split())
"""Functions of NumPy's and torch's whose first arguments are sizes."""
_PADDERS = frozenset(("pad",))
_LARGEST = frozenset(("max", "amax"))
"""What asks all samples for a length."""
_PLAIN = frozenset(("int", "min", "tuple"))


@functools.lru_cache(maxsize=32)
def padding_line(code) -> int:
    """The line that says to what length; 0 where none does, or the samples say it."""
    function = function_node(code)
    if not isinstance(function, ast.FunctionDef):
        return 0
    nodes = sorted(nodes_within(function), key=lambda node: getattr(node, "lineno", 0))
    asked = [node.lineno for node in nodes if _asks_for_longest(node)]
    if asked:
        return asked[0]
    names = _Names(nodes)
    made = [(node, sizes) for node in nodes if (sizes := _sizes(node)) and not any(map(names.are_asked_for, sizes))]
    fixed = [(node, size) for node, sizes in made for size in sizes if names.is_fixed(size)]
    set_here = [names.values[name].lineno for _, size in fixed for name in _read(size) if name in names.values]
    return next(iter((*set_here, *(node.lineno for node, _ in fixed))), 0)


class _Names:
    """What a function's names hold, by its source."""

    def __init__(self, nodes: list) -> None:
        single = [node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1]
        self.values = {node.targets[0].id: node.value for node in single if isinstance(node.targets[0], ast.Name)}
        self.stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}

    def are_asked_for(self, size) -> bool:
        """Whether the samples say how large it is."""
        values = [self.values[name] for name in _read(size) if name in self.values]
        return any(called(node) in _LARGEST for one in (size, *values) for node in ast.walk(one))

    def is_fixed(self, size) -> bool:
        """Whether no sample has a say in it: a constant, the name of one or of an argument, an attribute; less what
        there is."""
        if isinstance(size, ast.BinOp):
            return isinstance(size.op, ast.Sub) and self.is_fixed(size.left)
        if isinstance(size, (ast.Tuple, ast.List)):
            return any(map(self.is_fixed, size.elts))
        if isinstance(size, ast.Call):
            return called(size) in _PLAIN and bool(size.args) and all(map(self.is_fixed, size.args))
        if isinstance(size, ast.Name):
            value = self.values.get(size.id)
            return size.id not in self.stored if value is None else self._is_constant(value)
        return self._is_constant(size)

    def _is_constant(self, value) -> bool:
        if isinstance(value, ast.Name):
            return value.id not in self.stored
        if isinstance(value, ast.Attribute):
            return True
        return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 1


def _asks_for_longest(node) -> bool:
    """A tokenizer that is told to pad to the longest there may be."""
    named = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
    how = named.get("padding")
    return isinstance(how, ast.Constant) and how.value == "max_length"


def _sizes(node) -> list:
    """Expressions of which a padded length may be made."""
    name = called(node)
    if name in _MAKERS:
        first = node.args[0] if node.args else None
        return first.elts if isinstance(first, (ast.Tuple, ast.List)) else node.args
    if name in _PADDERS:
        return node.args[1:2]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (node.left, node.right)
        return [one for one in sides if not _is_list(one)] if any(map(_is_list, sides)) else []
    return []


def _is_list(node) -> bool:
    return isinstance(node, ast.List)


def _read(node) -> "list[str]":
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
