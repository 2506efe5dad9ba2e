"""The window of same results: three steps in which calls of the user's own functions are followed. Those are told that
return, for arguments that they were given before, what they returned before.

Of functions that call each other the outermost counts whose whole result is the same: its caller can keep it.
"""

import sys

from .. import timeline as parts
from ..rows import milliseconds, rounded
from .followed import Follower
from .followed_calls import Call, Function
from .line_clock import PARTS

_STEPS = 3
"""The fewest, or as many cycles, in which a function that is called once in each is called again, and then once with
nobody listening."""
_LIMIT_NS = 10_000_000_000
"""Longer steps are not waited for: the window opens in a job of any kind."""
_TELLING = 16
"""Of what a result says: two numbers with many digits, an array, sixteen items. A flag, a reward or the name of a file
that was written is often the same, whatever the call was for."""
_KEPT = 20
"""Rows kept, the largest."""
_LEAST = 0.01
"""Of a part's time: less is not told."""
_WITHIN = 20
"""Functions told of each row that nobody else calls."""
_AROUND = 0.9
"""Of the time of a function that closes over what it calls, and only passes on its result: a decorator's."""


class SameResultsWindow:
    """Opened at one step boundary, closed at another."""

    name = "same"
    microbenchmark = final_microbenchmark = None

    def __init__(self, sites, loop, compiled: bool, cycle: int = 1) -> None:
        """`cycle`: steps after which the loop does the same again."""
        self.loop = loop
        self.follower = Follower(sites, loop)
        self.compiled = compiled
        self.most = _STEPS * cycle

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        if self.compiled:
            return "the job uses torch.compile, which runs other code than the functions that it was given"
        if sys.getprofile() is not None:
            return "the job profiles its own functions"
        if sys.gettrace() is not None:
            return "a debugger or a coverage tool traces the job's lines"
        return ""

    def open(self) -> None:
        self.follower.begin()

    def stays(self, steps: int) -> bool:
        """Until each function of a step could be called often enough."""
        return steps < self.most and self.follower.age_ns() < _LIMIT_NS

    def closable(self) -> bool:
        """Always: where the job has begun to profile by itself, `end` leaves that alone."""
        return True

    def is_gone(self) -> bool:
        """Whether it has ended with its thread, whose number this one has got."""
        return sys.getprofile() is None and self.follower.timed is None

    def abandon(self) -> None:
        """Follow no more."""
        self.follower.end()

    def close(self, steps: int) -> dict:
        """Follow no more; the functions of `steps` steps."""
        self.abandon()
        return rows(self.follower, totals(self.follower), steps)


class FollowedBatches:
    """The same of batches that a data-loader worker makes."""

    def __init__(self, sites, loop) -> None:
        self.follower = Follower(sites, loop)
        self.batches = 0

    def begin(self) -> None:
        """A batch is about to be made."""
        self.follower.begin()

    def end(self) -> None:
        """It is made."""
        self.follower.end()
        self.batches += 1

    def summary(self) -> dict:
        """The functions, per batch."""
        follower = self.follower
        return rows(follower, {PARTS[parts.OTHER]: follower.wall_ns - follower.lost_ns}, self.batches)


def totals(follower: Follower) -> "dict[str, int]":
    """Nanoseconds of the steps that it has followed, by part."""
    found: "dict[str, int]" = {}
    for part, (ns, lost) in enumerate(zip(follower.totals, follower.lost)):
        found[PARTS[part]] = found.get(PARTS[part], 0) + ns - lost
    return found


def rows(follower: Follower, whole: "dict[str, int]", steps: int, among: "set[Call] | None" = None) -> dict:
    """The functions that are called again for what they have returned before, the dearest first. `whole`: nanoseconds
    by part; `among`: the calls that count."""
    again = _again(follower.calls)
    if among is not None:
        again &= among
    found: "dict[tuple, list[Call]]" = {}
    for call in follower.calls:
        if call in again and not any(above in again for above in _above(call)):
            found.setdefault((call.function, PARTS[call.part], call.loader), []).append(call)
    told = sorted(found.items(), key=lambda item: -_spent_ns(item[1]))[:_KEPT]
    return {
        "rows": [
            {
                **_row(follower, function, part, calls, steps),
                "loader": loader,
                "drawn": _drawn(follower, (function, part, loader), steps),
            }
            for (function, part, loader), calls in told
            if _spent_ns(calls) >= _LEAST * whole.get(part, 0)
        ]
    }


def _again(calls: "list[Call]") -> "set[Call]":
    """Those of whose function and arguments there was another one, where it always returned the same."""
    alike: "dict[tuple, list[Call]]" = {}
    for call in calls:
        function = call.function
        if call.number is not None and not function.moves and not function.differs:
            alike.setdefault((function, call.key), []).append(call)
    return {call for same in alike.values() if len(same) > 1 and same[0].telling >= _TELLING for call in same}


def _row(follower: Follower, function: Function, part: str, calls: "list[Call]", steps: int) -> dict:
    sites, place, code = follower.sites, _place(function, calls), function.code
    inner = _wrapped(follower.calls, function) or function
    return {
        "function": inner.reader or _name(inner),
        "reads": bool(inner.reader),
        "at": sites.at(*(place or (code, code.co_firstlineno))),
        "defined_at": sites.at(inner.code, inner.code.co_firstlineno),
        "within": [sites.at(one, one.co_firstlineno) for one in _within(follower.calls, function)],
        "part": part,
        "calls_per_step": rounded(len(calls) / steps),
        "arguments": len({call.key for call in calls}),
        "ms_per_step": milliseconds(_alone_ns(follower.calls, function, calls), steps),
    }


def _place(function: Function, calls: "list[Call]") -> "tuple | None":
    """The line that calls it, if it is one; of a library's function the one that does so most."""
    places = [call.at for call in calls]
    if function.reader:
        places = [one for one in places if one is not None]
        return max(places, key=places.count, default=None)
    return places[0] if len(set(places)) == 1 else None


def _drawn(follower: Follower, asked: tuple, steps: int) -> dict:
    """All calls of the function, in that part and for that loader: what came again may be drawn from a few arguments,
    of which most have not been seen twice yet. `apart`: calls from one to the next with the same arguments, on
    average, as a share of all."""
    calls = [one for one in follower.calls if one.number is not None]
    calls = [one for one in calls if (one.function, PARTS[one.part], one.loader) == asked]
    latest: "dict[bytes, int]" = {}
    apart = []
    for place, call in enumerate(calls):
        if call.key in latest:
            apart.append(place - latest[call.key])
        latest[call.key] = place
    return {
        "calls": len(calls),
        "calls_per_step": rounded(len(calls) / steps),
        "arguments": len(latest),
        "apart": rounded(sum(apart) / len(apart) / len(calls)) if apart else 0.0,
        "ms_per_step": milliseconds(_alone_ns(follower.calls, asked[0], calls), steps),
    }


def _spent_ns(calls: "list[Call]") -> int:
    return sum(call.spent_ns for call in calls)


def _alone_ns(every: "list[Call]", function: Function, calls: "list[Call]") -> float:
    """What some of the calls of a function take with nobody listening, by those that were timed so, if any were."""
    told = [call for call in every if call.function is function and not call.is_alone]
    watched = _median([call.spent_ns for call in told])
    if function.alone and _median([call.taken_ns for call in told]) > watched:
        # What is left, of a function with thousands of calls, is as exact as what telling of one is known to cost.
        timed = _median(function.alone)
        return sum(call.spent_ns if call.is_alone else timed for call in calls)
    factor = min(1.0, _median(function.alone) / max(1, watched)) if function.alone else 1.0
    # The frame of a call that raised goes later: what lies between is not its.
    return sum(min(call.spent_ns, watched) if call.is_alone else factor * call.spent_ns for call in calls)


def _median(values: "list[int]") -> int:
    return sorted(values)[len(values) // 2]


def _above(call: Call):
    """The calls that it was made in, the innermost first."""
    while call.above is not None:
        call = call.above
        yield call


def _within(calls: "list[Call]", function: Function) -> list:
    """Code of the functions that only it calls, as far as they were looked at."""
    inside: "dict[object, bool]" = {}
    for call in calls:
        is_inside = any(above.function is function for above in _above(call))
        inside[call.function.code] = inside.get(call.function.code, True) and is_inside
    return [code for code, only in inside.items() if only and code is not function.code][:_WITHIN]


def _wrapped(calls: "list[Call]", function: Function) -> "Function | None":
    """What it is a decorator's wrapper of; None where it is none."""
    if not function.code.co_freevars:
        return None
    below: "dict[Function, int]" = {}
    for call in calls:
        if call.above is not None and call.above.function is function:
            below[call.function] = below.get(call.function, 0) + call.spent_ns
    longest = max(below, key=lambda one: below[one], default=None)
    return longest if longest is not None and below[longest] >= _AROUND * function.spent_ns else None


def _name(function: Function) -> str:
    """`mel_bank`, `Clips.window` (before Python 3.11 `window`); of what makes an object its class."""
    code = function.code
    return function.kind or getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
