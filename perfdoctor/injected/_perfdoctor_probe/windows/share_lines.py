"""Where a generator keeps a worker's share of its samples, by its source: `islice(samples, first, None, shards)`, or
`number % shards == mine` in an `if` of a loop or of a generator expression.

What runs before that, and is of no use to samples that are not kept, makes samples that are thrown away: the iterator
itself where the decision asks for no more than a number, and statements of the loop whose results nobody else reads.
"""

import ast
import operator

from torch.utils.data import get_worker_info

from .source import called, function_node, nodes_within

_ADVANCING = frozenset("next read readline readinto recv get pop popleft grab".split())
"""Functions that may take the next one of something: what they return may be of no use, and calling them is."""
_ARITHMETIC = {ast.Add: operator.add, ast.Mult: operator.mul}


class Keeping:
    """A line at which one of so many samples is kept."""

    __slots__ = ("kept", "line", "making", "mine", "shards", "slicing")

    def __init__(self, line: int, making: list, kept: "tuple[int, int]", mine, shards, slicing=None) -> None:
        self.line = line
        self.making = making
        """First and last lines of what makes samples before."""
        self.kept = kept
        """Lines that yield what is kept."""
        self.mine, self.shards = mine, shards
        """Expressions: the first of the samples that are kept, and how many of them one is kept of."""
        self.slicing = slicing
        """The expression that must be `itertools.islice`; None for a remainder."""

    def makes_at(self, line: int) -> bool:
        return any(first <= line <= last for first, last in self.making)

    def keeps_at(self, line: int) -> bool:
        return self.kept[0] <= line <= self.kept[1]


def keepings(code) -> "list[Keeping]":
    """Those of a function, or of a generator expression."""
    scope = function_node(code)
    if isinstance(scope, ast.GeneratorExp):
        return _of_expression(scope)
    found = []
    for node in nodes_within(scope) if scope is not None else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.YieldFrom):
            sliced = _sliced(node.value.value)
            if sliced is not None:
                found.append(Keeping(node.lineno, [_lines(node)], _lines(node), *sliced))
        elif isinstance(node, (ast.For, ast.While)):
            found += _of_loop(node, scope)
    return found


def value(node, frame):
    """What an expression of names, attributes and numbers is in a frame; raises where it is of another kind. No code
    of the job's runs."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals[node.id] if node.id in frame.f_locals else frame.f_globals[node.id]
    if isinstance(node, ast.Attribute):
        return object.__getattribute__(value(node.value, frame), "__dict__")[node.attr]
    if isinstance(node, ast.BinOp):
        sides = value(node.left, frame), value(node.right, frame)
        if all(type(side) is int for side in sides):
            return _ARITHMETIC[type(node.op)](*sides)
    if isinstance(node, ast.IfExp):
        return value(node.body if _holds(node.test, frame) else node.orelse, frame)
    if called(node) == "get_worker_info":
        return get_worker_info()
    raise LookupError(ast.dump(node))


def _holds(test, frame) -> bool:
    """A condition such as `info`, `info is None` and `self.workers`."""
    if not isinstance(test, ast.Compare):
        found = value(test, frame)
        return found is not None and not (type(found) in (bool, int) and found == 0)
    if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and len(test.ops) == 1:
        same = value(test.left, frame) is value(test.comparators[0], frame)
        return same == isinstance(test.ops[0], ast.Is)
    raise LookupError(ast.dump(test))


# -- forms --------------------------------------------------------------------------------------------------


def _of_expression(expression) -> "list[Keeping]":
    """`(x for i, x in enumerate(samples) if i % shards == mine)`."""
    (loop, *others) = expression.generators
    remainder = _remainder(loop.ifs[0]) if len(loop.ifs) == 1 and not others else None
    if remainder is None or remainder[0] or not _only_numbers(loop, loop.ifs[0], []):
        return []
    if not _names_only(expression.elt):  # made of kept ones, on the same line
        return []
    return [Keeping(loop.ifs[0].lineno, [_lines(expression)], _lines(expression), *remainder[1:])]


def _of_loop(loop, function) -> "list[Keeping]":
    is_for = isinstance(loop, ast.For)
    header = (loop.lineno, loop.iter.end_lineno) if is_for else _lines(loop.test)
    if loop.body[0].lineno <= header[1]:  # all in one line
        return []
    sliced = _sliced(loop.iter) if is_for else None
    if sliced is not None:
        return [Keeping(loop.lineno, [header], _span(loop.body), *sliced)] if _yields(loop.body) else []
    for index, statement in enumerate(loop.body):
        remainder = _remainder(statement.test) if isinstance(statement, ast.If) and not statement.orelse else None
        kept = _kept(loop.body[index + 1 :], statement, remainder[0]) if remainder is not None else []
        if _yields(kept):
            before = loop.body[:index]
            needless = _needless(before, kept, loop, function)
            making = [_lines(one) for one in needless]
            later = [*(one.value for one in needless), *kept]
            if (
                is_for
                and _only_numbers(loop, statement.test, before)
                and _reads_only(_of_sample(loop), later, function)
            ):
                making.append(header)
            return [Keeping(statement.lineno, making, _span(kept), *remainder[1:])] if making else []
    return []


def _kept(after: list, statement, skips: bool) -> list:
    """The statements that only samples of the own share reach; none where others might."""
    counting = statement.body[:-1] if skips else after
    if not all(isinstance(one, ast.AugAssign) for one in counting):
        return []
    if skips:
        return after if isinstance(statement.body[-1], ast.Continue) else []
    return statement.body


def _sliced(node) -> "tuple | None":
    """First, shards and the function of `islice(samples, first, stop, shards)`."""
    if called(node) != "islice" or len(node.args) != 4 or node.keywords:
        return None
    return node.args[1], node.args[3], node.func


def _remainder(test) -> "tuple | None":
    """Of `number % shards == mine`: whether it is `!=`, mine and shards."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return None
    sides = test.left, test.comparators[0]
    for one, other in (sides, sides[::-1]):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
            return isinstance(test.ops[0], ast.NotEq), other, one.right
    return None


def _of_sample(loop) -> "set[str]":
    """Names for what a loop is given, but for the number of `enumerate`."""
    names = set(_bound(loop.target))
    if isinstance(loop.target, ast.Tuple) and called(loop.iter) == "enumerate":
        names.difference_update(_bound(loop.target.elts[0]))
    return names


def _only_numbers(loop, test, before: list) -> bool:
    """Whether the decision reads nothing of the samples that a loop is given."""
    made = (name for statement in before for name in _assigned(statement))
    return _of_sample(loop).union(made).isdisjoint(_read(test))


def _reads_only(names, nodes: list, function) -> bool:
    """Whether nothing else in a function reads these names."""
    everywhere, here = _read(function), _read(*nodes)
    return all(everywhere.count(name) == here.count(name) for name in names)


def _needless(before: list, kept: list, loop, function) -> list:
    """The statements whose results only samples of the own share need: nothing that the loop does later reads them,
    nor does the decision, nor an iteration from the one before."""
    found = [one for one in before if _assigned(one) and not _advances(one.value)]
    given = set(_bound(loop.target)) if isinstance(loop, ast.For) else set()
    while True:
        here = [*(one.value for one in found), *kept]
        private = [
            one
            for one in found
            if _reads_only(_assigned(one), here, function)
            and all(name in given or _is_bound_first(name, found) for name in _assigned(one))
        ]
        if len(private) == len(found):
            return found
        found = private


def _is_bound_first(name: str, statements: list) -> bool:
    """Before any of them reads it."""
    for one in statements:
        if name in _read(one.value):
            return False
        if name in _assigned(one):
            return True
    return False


# -- of nodes -----------------------------------------------------------------------------------------------


def _lines(node) -> "tuple[int, int]":
    return node.lineno, node.end_lineno


def _span(body: list) -> "tuple[int, int]":
    return body[0].lineno, body[-1].end_lineno


def _read(*nodes) -> "list[str]":
    """Names that are read, as often as they are."""
    every = (one for node in nodes for one in ast.walk(node))
    return [one.id for one in every if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]


def _bound(target) -> "list[str]":
    return [one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _assigned(statement) -> "list[str]":
    """Names, by an assignment to names and to nothing else."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    nodes = [one for target in targets for one in ast.walk(target)]
    if not all(isinstance(one, (ast.Name, ast.Tuple, ast.expr_context)) for one in nodes):
        return []
    return [one.id for one in nodes if isinstance(one, ast.Name)]


def _advances(node) -> bool:
    return any(called(one) in _ADVANCING for one in ast.walk(node))


def _names_only(node) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Tuple) and all(_names_only(one) for one in node.elts))


def _yields(body: list) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for node in body for one in ast.walk(node))
