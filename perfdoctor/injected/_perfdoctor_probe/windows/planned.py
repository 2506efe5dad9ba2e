"""How many steps the loop is going to take, where its `for` statements say so (`for epoch in range(3): for x in data:`)
or its trainer does. A loop that a `break` or a `return` may end is not surely that long."""

import ast
import os
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset

from . import trainer_plans
from .holdings import variables
from .loops import UNREADABLE, Loops
from .named import attribute
from .source import called
from .tensor_sizes import array_type

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
"""Its loops go over hooks and parameters."""
_AROUND = ("tqdm", "track")
"""They show how far a loop is, tqdm's and rich's."""
_RANGES = ("range", "trange")
_PARTS = ("split", "chunk", "array_split")
_DRAWN = ("randperm", "permutation", "arange")
_COUNTED = (list, tuple, dict, range)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_OPERATORS = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.FloorDiv: lambda one, other: one // other if other else None,
}
_SLACK = (2, 0.02)
"""Steps, and share of them, that may be missing from or added to what the loops went round: the first few have no known
end, and an epoch's last gradients may be of fewer batches. With more, other loops took steps before."""
_SURELY = 40
"""Times that the loops went round, from which on several steps in each are believed: of fewer, steps that other loops
took before make a multiple by chance. 46 of a replay's warm-up and 12 made five in each."""


def planned(sites, step: int, loading=None, first: int = 0) -> "dict | None":
    """The steps that the process will have taken in all, of which `step` are done, those of an epoch (0 where that is
    not known), and who says so; None where a loop around the line under way has no sure length. `first`: the step from
    which on the loops that are under way take them.

    `loading` knows the loaders; one is asked for its length, and with it the data set, as by a progress bar. None of
    the job's code runs otherwise.
    """
    try:
        plan, loops = _plan(sites, step - first)
        plan = plan or _by_loops(loops, step - first, loading)
    except UNREADABLE:
        return None
    return plan and {**plan, "steps": plan["steps"] + first}


def gone_round(sites, step: int, loading=None) -> "tuple[float, float] | None":
    """How often the loops under way have gone round, or their trainer has taken a step of `step`, and how often they
    will have; None as above."""
    try:
        plan, loops = _plan(sites, step)
        if plan is not None:
            return step, plan["steps"]
        rounds, done, _, unplaced = _rounds_of(loops, loading) or (0, 0, 0, 0)
    except UNREADABLE:
        return None
    return (done + 1, rounds) if rounds > 1 and not unplaced else None


def _plan(sites, step: int) -> "tuple[dict | None, list[tuple]]":
    """A trainer's plan, where one is at work and its fit is not one of several; else the loops under way."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_OWN, "<")):
            frames.append(frame)
        frame = frame.f_back
    for index, frame in enumerate(frames):
        plan = trainer_plans.of(frame, step)
        if plan is not None:
            # Folds, or a search for parameters: how often the trainer will train is not known.
            return (None if _loops(sites, _outside(frames[index:])) else plan), []
    return None, _loops(sites, frames)


def _outside(frames: list) -> list:
    """Those that called the package of the first one."""
    folder = trainer_plans.package(frames[0].f_code.co_filename)
    inside = [number for number, frame in enumerate(frames) if frame.f_code.co_filename.startswith(folder)]
    return frames[inside[-1] + 1 :]


def _loops(sites, frames: list) -> "list[tuple]":
    """The loops around the lines under way, the innermost first, each with its frame; None for that of a library's."""
    finder = Loops([])
    found = []
    for frame in frames:
        code = frame.f_code
        if not code.co_filename.startswith(_TORCH):
            own = not sites.is_library(code.co_filename)
            around = finder.enclosing(code.co_filename, frame.f_lineno, code.co_name)
            found += [(loop, frame if own else None) for loop in around]
    return found


def _by_loops(loops: list, step: int, loading) -> "dict | None":
    rounds, done, epoch, unplaced = _rounds_of(loops, loading) or (0, 0, 0, 0)
    if unplaced:  # parts of a tensor, of which no name says how many there were: one for each step, in the second epoch
        if not 0 <= step - 1 - done < unplaced or not done:
            return None
        done = step - 1
    done += 1
    if rounds < 2 or not step:
        return None
    each = round(step / done) if step >= done else 1 / round(done / step)
    if abs(step - each * done) > max(_SLACK[0], _SLACK[1] * step) or (each > 1 and done < _SURELY):
        return None
    in_epoch = round(epoch * each) if epoch < rounds else 0
    return {"steps": step + round((rounds - done) * each), "epoch": in_epoch, "by": "loops"}


def _rounds_of(loops: list, loading) -> "tuple[int, int, int, int] | None":
    """How often the innermost loop goes round in all, how often it has, how often in an epoch, and in how many rounds
    that are not counted the present one is; None where one of them has no sure length."""
    rounds, done, epoch, unplaced = 1, 0, 0, 0
    for number, (loop, frame) in enumerate(loops):
        numbers = None if frame is None or _may_leave(loop) else _numbers(loop, frame, loading)
        if numbers is None:
            return None
        length, at, is_loader = numbers
        if at is None and not number:
            unplaced, at = length, 0
        if at is None:
            return None
        done += at * rounds
        rounds *= length
        if is_loader or (len(loops) == 2 and not number):
            epoch = rounds
    return rounds, done, epoch, unplaced


def _may_leave(loop) -> bool:
    """Whether a `break` or a `return` may end it before its iterator does."""
    waiting = [(node, True) for node in getattr(loop, "body", ())]  # a comprehension has none
    while waiting:
        node, own = waiting.pop()
        if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break)):
            return True
        if not isinstance(node, _FUNCTIONS):
            inside = own and not isinstance(node, _LOOPS)
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return False


def _numbers(loop, frame, loading) -> "tuple[int, int | None, bool] | None":
    """Of a loop: how often it goes round, how often it has, if anything says so, and whether it is a data loader's."""
    over, target = getattr(loop, "iter", None), getattr(loop, "target", None)
    if over is None:
        return None
    words = (*ast.walk(over), *ast.walk(target))
    known = variables(frame, {word.id for word in words if isinstance(word, ast.Name)})
    return _rounds(over, target, known, loading)


def _rounds(over, target, known: dict, loading) -> "tuple[int, int | None, bool] | None":
    """The same of what a loop goes over; the second is None where nothing says it."""
    name, args = called(over), getattr(over, "args", ())
    targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()
    if name in _AROUND and args:
        return _rounds(args[0], target, known, loading)
    if name == "enumerate" and args and len(targets) == 2:
        found = _rounds(args[0], targets[1], known, loading)
        if found is None or found[1] is not None or len(args) > 1 or over.keywords:
            return found
        return found[0], _index(_value(targets[0], known), found[0]), found[2]
    if name == "zip" and args and len(targets) == len(args):
        parts = [_rounds(*pair, known, loading) for pair in zip(args, targets)]
        if None in parts:
            return None
        at = next((part[1] for part in parts if part[1] is not None), None)
        return min(part[0] for part in parts), at, any(part[2] for part in parts)
    if name == "islice" and len(args) == 2:
        found, most = _rounds(args[0], target, known, loading), _value(args[1], known)
        return (min(found[0], most), *found[1:]) if found is not None and type(most) is int else None
    if name in _RANGES:
        numbers = [_value(word, known) for word in args]
        if not args or (name == "range" and name in known) or not all(type(number) is int for number in numbers):
            return None
        rounds = range(*numbers)
        at = _value(target, known)
        return len(rounds), rounds.index(at) if type(at) is int and at in rounds else None, False
    if name in _PARTS and args:
        parts = _parts(over, name, known)
        return None if parts is None else (parts, None, False)
    one = _value(over, known)
    if type(one).__module__.partition(".")[0] == "tqdm":
        one = attribute(one, "iterable")
    if isinstance(one, DataLoader):
        return _of_loader(one, loading) if loading is not None else None
    length = _length(one)
    return None if length is None else (length, None, False)


def _parts(over, name: str, known: dict) -> "int | None":
    """Into how many a tensor is cut by `x.split(size)`, `torch.split(x, size)`, `x.chunk(count)` or `array_split`."""
    owner = over.func.value if isinstance(over.func, ast.Attribute) else None
    is_function = len(over.args) > 1
    whole, number = (over.args[0] if is_function else owner), _value(over.args[-1], known)
    length = None if whole is None else _length_of(whole, known)
    if length is None or type(number) is not int or number < 1:
        return None
    each = number if name == "split" else -(-length // number)
    return number if name == "array_split" else -(-length // max(1, each))


def _length_of(node, known: dict) -> "int | None":
    """Of a tensor by name, or of a permutation that is drawn for the loop."""
    if called(node) in _DRAWN and node.args:
        number = _value(node.args[0], known)
        return number if type(number) is int else _length(number)
    return _length(_value(node, known))


def _index(value, length: int) -> "int | None":
    return value if type(value) is int and 0 <= value < length else None


def _of_loader(loader, loading) -> "tuple[int, int, bool] | None":
    identity = loading.ids.get(id(loader))
    running = [iterator for iterator, (number, _) in loading.running.items() if number == identity]
    if not running or isinstance(loader.dataset, IterableDataset):
        return None
    return len(loader), max(0, running[-1]._num_yielded - 1), True


def _value(node, known: dict):
    """Of a constant, a name, its attributes, items and length, or a sum of some; None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return attribute(_value(node.value, known), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        one = _value(node.value, known)
        return one.get(node.slice.value) if type(one) is dict else None
    if called(node) == "len" and len(node.args) == 1 and "len" not in known:
        return _length(_value(node.args[0], known))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        one, other = _value(node.left, known), _value(node.right, known)
        return _OPERATORS[type(node.op)](one, other) if type(one) is type(other) is int else None
    return None


def _length(one) -> "int | None":
    """Of Python's own containers, of tensors and of arrays; a loader is asked. None for what may be anything."""
    if type(one) in _COUNTED:
        return len(one)
    if isinstance(one, DataLoader):
        return None if isinstance(one.dataset, IterableDataset) else len(one)
    if type(one) in (torch.Tensor, array_type()):
        return one.shape[0] if one.ndim else None
    return None
