"""A gate in words: the verdict, and one sentence for each judgement."""

from __future__ import annotations

from ..evidence.model import Missing
from ..gate.model import Assume, GateResult, Judgement, Unit, Verdict
from . import wording

WORDS = {
    Verdict.PASS: "PASS",
    Verdict.IMPROVEMENT: "IMPROVEMENT",
    Verdict.REGRESSION: "REGRESSION",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE",
    Verdict.NOT_COMPARABLE: "NOT COMPARABLE",
    Verdict.IDENTICAL: "IDENTICAL",
    Verdict.FAILED: "FAILED",
    Verdict.NOT_JUDGED: "not judged",
}


def headline(result: GateResult) -> str:
    """`REGRESSION: the uncontended step is 6.1 % slower [4.9, 7.2]; 2 counters rose`."""
    return f"{WORDS[result.verdict]}: {wording.clean(result.reason)}"


def number(value: float | Missing, unit: Unit) -> str:
    """A value with its unit; a dash for what was not measured."""
    if isinstance(value, Missing):
        return "–"
    if unit == "bytes":
        return wording.size(value)
    if unit == "ms":
        return wording.duration(value)
    if unit == "s":
        return wording.duration(1000 * value)
    if unit == "share":
        return wording.share(value)
    if unit == "flops":
        return wording.flops(value)
    return wording.rate(value) if unit == "samples/s" else exactly(value)


def exactly(value: float) -> str:
    """A counter in full: `12,480`, `12.5`."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def change(judgement: Judgement) -> str:
    """`+5.9 % [4.8, 7.0]`, `+1`, `+64.0 MiB`, `+3.2 points`; "" when there is none."""
    if judgement.change is None:
        return ""
    value = judgement.change
    if judgement.assume is Assume.TIMED:
        return f"{100 * value:+.1f} %{_interval(judgement, 100)}"
    if judgement.unit == "share":
        return f"{100 * value:+.1f} points{_interval(judgement, 100)}"
    size = number(abs(value), judgement.unit)
    if not any(digit in size for digit in "123456789"):
        return "±0"
    return f"{'+' if value > 0 else '-'}{size}"


def _interval(judgement: Judgement, scale: float) -> str:
    if judgement.low is None or judgement.high is None:
        return ""
    return f" [{scale * judgement.low:+.1f}, {scale * judgement.high:+.1f}]"


def judged(judgement: Judgement) -> str:
    """One judgement as a sentence."""
    before, after = number(judgement.before, judgement.unit), number(judgement.after, judgement.unit)
    if judgement.is_budget:
        return wording.sentence(wording.clean(f"{judgement.label}: {after}; {judgement.reason}"))
    moved = change(judgement)
    how = f" ({moved})" if moved else ""
    return wording.sentence(wording.clean(f"{judgement.label}: {before} before, {after} now{how}: {judgement.reason}"))
