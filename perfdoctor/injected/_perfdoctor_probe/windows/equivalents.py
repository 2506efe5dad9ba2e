"""Operators in whose place others would make the same numbers for less: tried on the job's own tensors, as they run.

What could take their place is said by rules (`rewritings`). Here each such way is run once or twice where it was found,
timed, and compared with what the job has made: a way counts only if its numbers are the same, up to rounding, and if
nobody but the operators that it replaces reads what would not be made any more.
"""

import math
import time
from collections import deque

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..hooks.held_out import tensors
from ..rows import milliseconds
from . import rewritings
from .source import given_at

_LEAST_NS = 50_000
"""Operators that take less together are not worth trying anything else: calling one takes a tenth."""
_BUDGET_NS = 1_500_000_000
"""Of trying: what has had no turn by then is not known."""
_TIMES = 3
"""More, at most, until it takes less: the first time something may have to be made that is kept, and a neighbour may
have had the CPU."""
_SAME = 1e-3
"""Of the largest number: sums in another order differ by less, and differences of squares by up to this."""
_SAME_SOLUTION = 0.2
"""The same of a system of equations: the inverse of a stiffness matrix in float32 was off by 0.04 in a healthy job."""
_TIES = 0.9
"""Of places that must be the same: equal numbers may be ranked either way."""
_LEAST = 0.005
"""Of all operators' time: less is not told."""
_KEPT = 20
"""Rows kept, the largest."""
_WHOLE_LINE = ("one-hot", "product")
"""Kinds in which the rest of their line falls away too, as far as it goes through as many numbers: what makes them, and
lengths of what is written out."""
_IN_ORDER = ("enlarged",)
"""Kinds of which the order of calls is to change: they are told where one function makes both."""
_GIVEN = {"transform": ("n", "s", "n_fft")}
"""Kinds that what a call is given decides, by these keywords: they are told where that is computed."""
_CARRIED = 0.8
"""Of what is joined, what was joined before, at least: a memory that is not full yet gains a little with each step."""
_PASSING = 24
"""Links of chains by number that are known at once: their arguments are as large as what they make."""
_BACKWARD = 2
"""Times as long as forwards: one product for each factor."""
_clock = time.perf_counter_ns


class _Tried:
    """A way that was timed."""

    __slots__ = ("backward_ns", "forward_ns")

    def __init__(self, forward_ns: float, backward_ns: "float | None") -> None:
        self.forward_ns = forward_ns
        self.backward_ns = backward_ns

    def backwards_ns(self) -> float:
        """As timed, or as a product of matrices has it."""
        return _BACKWARD * self.forward_ns if self.backward_ns is None else self.backward_ns


class _Case:
    """Operators that something else could stand for."""

    __slots__ = ("allowed", "in_each_step", "kind", "links", "made", "part", "shape", "tried")

    def __init__(self, other, made: list, tried: "_Tried | None", allowed: list) -> None:
        self.kind = other.kind
        self.links = other.links
        self.shape = other.shape
        self.part = other.part
        self.in_each_step = other.in_each_step
        self.made = made
        """The calls that would fall away, the first one first."""
        self.tried = tried
        self.allowed = allowed
        """Calls that may read what they make."""

    def is_free(self) -> bool:
        """Whether nobody else reads it."""
        allowed = {id(one) for one in self.allowed}
        readers = [one for found in self.links for one in found.used_by]
        return all(id(one) in allowed or self._is_linear(one) for one in readers)

    def is_part_of(self, other: "_Case") -> bool:
        """Whether all that would fall away here would there."""
        return self.kind == other.kind and {id(one) for one in self.made} < {id(one) for one in other.made}

    def falls_away(self) -> list:
        """All calls that would, with sums over a product of matrices."""
        known = {id(one) for one in self.made}
        readers = [one for found in self.links for one in found.used_by]
        return [*self.made, *(one for one in readers if self._is_linear(one) and id(one) not in known)]

    def line(self) -> tuple:
        """The place to tell: of the first call."""
        stack, last = self.made[0].stack, self.made[-1].stack
        if self.kind not in _IN_ORDER:
            return stack[-1]
        shared = next(
            (at for at, (one, other) in enumerate(zip(stack, last)) if one != other), min(len(stack), len(last))
        )
        apart = [places[shared : shared + 1] for places in (stack, last)]
        in_one_function = all(apart) and len({(place[0][0], place[0][2]) for place in apart}) == 1
        return stack[shared] if in_one_function or not shared else stack[shared - 1]

    def _is_linear(self, one) -> bool:
        return self.kind == "order" and one.func in rewritings.LINEAR


class Equivalents:
    """Follows the operators of steps; told of each after it has run."""

    def __init__(self) -> None:
        self.step = -1
        self.links: "dict[int, tuple[StorageWeakRef, rewritings.Link]]" = {}
        """Of this step, by the storage that holds what was made."""
        self.tried: "dict[tuple, _Tried | None]" = {}
        """By kind, line and shapes; None: no gain, or other numbers."""
        self.contents: "dict[tuple, tuple[int, list]]" = {}
        """Of a product: the number of what its first matrix held, and its calls in the step in which it was met."""
        self.kinds: "dict[tuple, rewritings.Other | None]" = {}
        """What a look at its content has shown."""
        self.joined: "dict[int, tuple[StorageWeakRef, object]]" = {}
        """Calls that joined tensors, in any step, by the storage of what they made."""
        self.cases: "list[_Case]" = []
        self.constant: "dict[tuple, tuple[list, int, list[_Case]]]" = {}
        """By kind, line and shapes: numbers of what has to stay the same, since when, and the cases of that step."""
        self.passing: "deque[rewritings.Link]" = deque()
        """Links whose arguments are let go soon."""
        self.parts: "dict[int, _Case]" = {}
        """Of this step, by the call of whose result parts are read."""
        self.spent_ns = 0
        self.large: "dict[tuple, list[tuple]]" = {}
        """Calls of a line in a step, each with how many numbers it goes through."""

    def ended(self, made, args: tuple, kwargs: dict, result, holds) -> None:
        """A call of the forward pass. `holds`: gives the number of what a tensor holds."""
        if made.step != self.step:
            self._let_go()
            self.step, self.links, self.parts = made.step, {}, {}
            self.passing.clear()
        func = made.func
        if func in rewritings.SAME_MEMORY:
            return
        read = self._read(args)
        for found, _ in read:
            found.used_by.append(made)
        other = rewritings.by_shape(func, args, kwargs, result, self._known)
        if other is not None:
            self._meets(other, made, result, holds)
        if other is None and read:
            parts = [(found, rewritings.of_part(found, tensor)) for found, tensor in read]
            for found, part in sorted(parts, key=lambda one: one[1] is None):
                self._reads_part(found, part, made)
        if made.spent_ns >= _LEAST_NS:
            numbers = max((one.numel() for one in tensors((args, result))), default=0)
            self.large.setdefault((made.step, made.stack), []).append((made, numbers))
            self._looks(made, args, kwargs, result, holds)
            if func is torch.ops.aten.cat.default:
                self._joins(made, args, result)
        if read or made.spent_ns >= _LEAST_NS:
            for tensor, found in rewritings.links(func, args, kwargs, result, made, self._known):
                storage = tensor.untyped_storage()
                self.links[storage._cdata] = StorageWeakRef(storage), found
                if found.is_passing:
                    self.passing.append(found)
                    if len(self.passing) > _PASSING:
                        self.passing.popleft().args = ()

    def close(self) -> None:
        """Keep nothing of the job's any more."""
        self._let_go()
        self.links, self.parts = {}, {}
        self.passing.clear()

    def _let_go(self) -> None:
        """Of the job's tensors of the step before."""
        waiting = (case for *_, some in self.constant.values() for case in some)
        for case in (*self.cases, *waiting):
            for found in case.links:
                found.args = ()

    def _known(self, tensor) -> "rewritings.Link | None":
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return None
        held = self.links.get(tensor.untyped_storage()._cdata)
        return held[1] if held is not None else None

    def _read(self, args: tuple) -> "list[tuple]":
        if not self.links:
            return []
        found = ((self._known(one), one) for one in tensors(args))
        return [(one, tensor) for one, tensor in found if one is not None]

    # -- trying

    def _meets(self, other, made, result, holds) -> None:
        """Something that could be in the place of a call, and of those whose results it reads."""
        allowed = [found.made for found in reversed(other.links)] + [made]
        calls = allowed if other.replaces_last else allowed[:-1]
        case = _Case(other, calls, None, allowed)
        waiting = self._waited(other, case, made, holds) if other.constant else ()
        if waiting is None:
            return
        tried = self._try(other, calls, made, result)
        if tried is not None:
            if self.cases and self.cases[-1].is_part_of(case):
                self.cases.pop()
            for one in (*waiting, case):
                one.tried = tried
                self.cases.append(one)

    def _waited(self, other, case: _Case, made, holds) -> "list[_Case] | None":
        """The cases of the step before, where what has to stay the same is as it was in it; None where this one has to
        wait for another step too, or nothing is the same."""
        numbers = [holds(one) for one in other.constant]
        before, since, waiting = self.constant.setdefault(_key(other.kind, made, other.shape), (numbers, made.step, []))
        earlier = list(waiting)
        if numbers == before and made.step == since:
            waiting.append(case)
            return None
        waiting.clear()
        return earlier if numbers == before else None

    def _reads_part(self, found, other, made) -> None:
        """A call has read a part of what was made, for which something else would do; or all of it, or another part."""
        case = self.parts.get(id(found.made))
        if other is None:
            if case is not None:
                case.allowed = [one for one in case.allowed if one is not made]
            return
        if case is not None:
            if case.part == other.part:
                case.allowed.append(made)
            return
        tried = self._try(other, [found.made], made, None)
        if tried is not None:
            case = self.parts[id(found.made)] = _Case(other, [found.made], tried, [made])
            self.cases.append(case)

    def _looks(self, made, args: tuple, kwargs: dict, result, holds) -> None:
        """At a product of matrices: is the first one nearly empty, or so but for blocks? Where that is no other way by
        itself, once more when its line is met in another step again: a matrix that stays could be kept as a sparse one.
        """
        both = rewritings.factors(made.func, args, kwargs)
        if both is None:
            return
        key = _key("", made, both)
        calls = [made]
        if key not in self.kinds:
            number = holds(both[0] if both[0].layout is torch.strided else both[0]._values())
            before, earlier = self.contents.setdefault(key, (number, []))
            if earlier and earlier[0].step == made.step:
                earlier.append(made)
                return
            other = None if self._is_over() else rewritings.by_content(*both, bool(earlier) and number == before)
            if other is not None and self._try(other, calls, made, result) is None:
                other = None
            if other is None and not earlier:
                earlier.append(made)
                return
            if other is not None:
                other.make = other.backward = None  # lets go of the job's tensors
            self.kinds[key] = other
            calls += earlier
        other = self.kinds[key]
        if other is not None:
            tried = self.tried[_key(other.kind, made, other.shape)]
            self.cases += [_Case(other, [one], tried, []) for one in calls]

    def _joins(self, made, args: tuple, result) -> None:
        """Tensors; is most of it what the same line has joined in an earlier step?"""
        size, earlier = result.untyped_storage().nbytes(), []

        def is_carried(tensor) -> bool:
            storage = tensor.untyped_storage()
            _, before = self.joined.get(storage._cdata, (None, None))
            if before is None or before.step >= made.step or before.stack != made.stack:
                return False
            if not _CARRIED * size <= storage.nbytes() <= size:
                return False
            earlier.append(before)
            return True

        other = rewritings.rebuilt(args[0], args[1] if len(args) > 1 else 0, result, is_carried)
        tried = None if other is None else self._try(other, [made], made, result)
        if tried is not None:
            # The first one was not known to be one.
            known = {id(one) for case in self.cases for one in case.made}
            self.cases += [_Case(other, [one], tried, []) for one in (*earlier, made) if id(one) not in known]
        self.joined[result.untyped_storage()._cdata] = StorageWeakRef(result.untyped_storage()), made

    def _is_over(self) -> bool:
        return self.spent_ns > _BUDGET_NS

    def _try(self, other, calls: list, made, result) -> "_Tried | None":
        """What it takes, tried where the line is met first; None where that is no less or other numbers come out."""
        now_ns = sum(one.spent_ns for one in calls)
        if other.make is None:
            return _Tried(now_ns, 0.0)
        key = _key(other.kind, made, other.shape)
        if key in self.tried:
            return self.tried[key]
        if now_ns < _LEAST_NS or self._is_over() or not made.stack:
            return None
        self.tried[key] = None
        began = _clock()
        try:
            with torch.no_grad():
                self.tried[key] = _timed(other, now_ns, result)
        finally:
            self.spent_ns += _clock() - began
        return self.tried[key]

    # -- what came of it

    def rows(self, steps: int, whole_ns: float, sites, backward_ns) -> "list[dict]":
        """By kind and line, per step of `steps`, the dearest first; `backward_ns` gives what the backward pass did for
        a call."""
        by_line: "dict[tuple, list[_Case]]" = {}
        free = [case for case in self.cases if case.made[0].stack and case.is_free()]
        gone = {id(one) for case in free if case.links for one in case.made}
        for case in free:
            if case.links or id(case.made[0]) not in gone:  # else something better is known of it
                by_line.setdefault((case.kind, case.line()), []).append(case)
        found = [
            _row(kind, line, cases, self._beside(cases), steps, sites, backward_ns)
            for (kind, line), cases in by_line.items()
            if not cases[0].in_each_step or len({case.made[0].step for case in cases}) >= steps
        ]
        worth = [row for row in found if _saved_ms(row) * steps * 1e6 >= _LEAST * whole_ns]
        return sorted(worth, key=lambda row: -_saved_ms(row))[:_KEPT]

    def _beside(self, cases: "list[_Case]") -> list:
        """What falls away beside the calls of these."""
        known, beside = {id(one) for case in cases for one in case.falls_away()}, {}
        for case in cases if cases[0].kind in _WHOLE_LINE else []:
            for one, numbers in self.large.get((case.made[0].step, case.made[0].stack), []):
                if numbers >= math.prod(case.shape) and id(one) not in known:
                    beside[id(one)] = one
        return list(beside.values())


def _key(kind: str, made, what) -> tuple:
    shapes = tuple(tuple(one.shape) if isinstance(one, torch.Tensor) else one for one in what)
    return kind, made.func, made.stack, shapes


def _timed(other, now_ns: float, result) -> "_Tried | None":
    made, took_ns = _run(other.make)
    wanted = result if other.instead_of is None else other.instead_of
    if wanted is not False and not agree(made, wanted, _SAME_SOLUTION if other.is_ill_conditioned else _SAME):
        return None
    for _ in range(_TIMES):
        took_ns = min(took_ns, _run(other.make)[1])
        if took_ns < now_ns or other.is_for_gradient:
            break
    else:
        return None
    slower = 1.0
    if other.as_it_is is not None:
        slower = max(1.0, now_ns / max(1, _as_it_is_ns(other)))
        if slower * took_ns >= now_ns:
            return None
    if other.backward is None:
        return _Tried(slower * took_ns, None)
    return _Tried(slower * took_ns, slower * min(_run(other.backward, made)[1] for _ in range(2)))


def _as_it_is_ns(other) -> int:
    """What the job's own way takes when it is timed as the other one is."""
    return min(_run(other.as_it_is)[1] for _ in range(_TIMES))


def _run(function, *args) -> tuple:
    """What it returns, and ns."""
    began = _clock()
    made = function(*args)
    return made, _clock() - began


def agree(one, wanted, same: float = _SAME) -> bool:
    """Whether both hold the same numbers, up to rounding."""
    if one.shape != wanted.shape:
        return False
    if not one.is_floating_point():
        return bool((one == wanted).float().mean() >= _TIES)
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    return bool(torch.allclose(one, wanted, rtol=0.0, atol=same * largest))


def _row(kind: str, line: tuple, cases: "list[_Case]", beside: list, steps: int, sites, backward_ns) -> dict:
    calls = [one for case in cases for one in case.falls_away()] + beside
    passed = [case for case in cases if any(backward_ns(one) for one in case.made)]
    largest = max(cases, key=lambda case: sum(one.spent_ns for one in case.made))
    now_ns = sum(one.spent_ns for one in calls), sum(map(backward_ns, calls))
    other_ns = sum(case.tried.forward_ns for case in cases), sum(case.tried.backwards_ns() for case in passed)
    now, other = (tuple(milliseconds(ns, steps) for ns in way) for way in (now_ns, other_ns))
    then_at = sites.number((*largest.made[-1].stack[-1], None))
    file, number, function = line
    at = sites.number((file, given_at(file, number, _GIVEN[kind]) if kind in _GIVEN else number, function, None))
    return row(kind, at, len(cases) / steps, largest.shape, now, other, then_at)


def row(kind: str, at: int, times: float, shape, now: tuple, other: tuple, then_at: "int | None" = None) -> dict:
    """As it is recorded. `now`, `other`: milliseconds per step, forwards and backwards."""
    return {
        "kind": kind,
        "at": at,
        "then_at": at if then_at is None else then_at,
        "times_per_step": times,
        "shape": list(shape),
        "forward_ms": now[0],
        "backward_ms": now[1],
        "other_forward_ms": other[0],
        "other_backward_ms": other[1],
    }


def _saved_ms(row: dict) -> float:
    return row["forward_ms"] + row["backward_ms"] - row["other_forward_ms"] - row["other_backward_ms"]
