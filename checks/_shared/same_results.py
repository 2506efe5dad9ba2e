"""Functions that return again what they have returned: what is said of them in training and in making batches."""

from __future__ import annotations

from perfdoctor.api.causes import different
from perfdoctor.api.findings import Fix, Measurement, milliseconds
from perfdoctor.api.quantities import SameResult

SAVED = (0.85, 1.0)
"""Of its time: asking for the kept result takes next to none, and timed in the job it takes longer than by itself: 1.10
times for an array of NumPy's, 1.15 to 1.2 times for a loop in Python (twelve runs)."""
_EVERY = 0.9
"""Of the samples of a batch: a call or two may lie outside the batches that were watched."""
_ONCE = 1.5
"""Calls up to which it is called once."""
_READ_ONCE = {"NpzFile.__getitem__": "arrays = dict(numpy.load(path))  # reads all of them, once"}


def how_often(one: SameResult, per: str, samples: float = 0.0) -> str:
    """What it returns, as a clause; `per`: step or batch, of so many `samples`."""
    if one.arguments > 1:
        return "returns again what it has returned before"
    if samples > 1 and one.calls_per_step >= _EVERY * samples:
        return "returns the same for every sample"
    if one.calls_per_step <= _ONCE:
        return f"returns the same in every {per}"
    return f"returns the same {{calls:time}} per {per}"


def reasoning(one: SameResult, per: str) -> str:
    """How that is known."""
    arguments = "the same arguments" if one.arguments == 1 else "{arguments:set|sets} of arguments that came again"
    return (
        f"it was called {{calls:time}} per {per} with {arguments}, by what they hold, and what it returned held the "
        "same each time; no random number was drawn"
        + ("" if different(one) is None else "; it seems to be given one of about {different} each time")
    )


def told(one: SameResult, per: str, cost_ms: float) -> tuple[Measurement, ...]:
    """Its measurements; `cost_ms`: with what comes again later than it was watched."""
    about = different(one)
    return (
        Measurement("function", f"`{one.function}()`", "text", "function"),
        milliseconds("function_ms", cost_ms, f"in these calls, per {per}"),
        Measurement("calls", one.calls_per_step, "count", f"calls per {per}"),
        Measurement("arguments", one.arguments, "count", "different arguments among them"),
        *((Measurement("different", round(about), "count", "arguments that there may be"),) if about else ()),
    )


def once(one: SameResult) -> Fix:
    """Read or compute it once."""
    if one.reads:
        return Fix(
            text="Read it once and keep what it holds, where that fits into memory: in `__init__`, or through a "
            "function of your own with `functools.lru_cache`. Of a `.npy` file `numpy.load(path, mmap_mode='r')` reads "
            "what is asked for.",
            code=_READ_ONCE.get(one.function, f"kept = {one.function}(...)  # once, before the first batch"),
            risk="Takes memory for all that is kept, in each worker; who changes it in place must copy it first.",
        )
    return Fix(
        text="Compute it once and keep the result: before the loop, in `__init__`, or by `functools.lru_cache` on the "
        "function.",
        code=f"kept = {one.function}(...)  # once, before the first batch",
        risk="What it reads besides its arguments must stay as it is, and who changes the result in place must copy it "
        "first.",
    )
