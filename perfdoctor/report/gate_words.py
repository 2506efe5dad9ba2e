"""A gate in words: verdict and judgements as sentences, and in groups for the renderers, the same ones summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..evidence.model import Missing
from ..exits import Exit
from ..gate.model import Assume, GateResult, Judgement, Unit, Verdict, Why
from . import wording
from .sheet import Status


class Shown(NamedTuple):
    """What a verdict is to people, to other programs, and to the shell."""

    mark: str
    style: str
    """Of a headline on a terminal."""
    status: Status
    level: str
    """Of a notice; "" where there is none."""
    exit_code: Exit


SHOWN = {
    Verdict.PASS: Shown("✓", "bold green", Status.PASSED, "", Exit.OK),
    Verdict.IMPROVEMENT: Shown("↑", "bold green", Status.PASSED, "note", Exit.OK),
    Verdict.IDENTICAL: Shown("=", "bold green", Status.PASSED, "", Exit.OK),
    Verdict.REGRESSION: Shown("✗", "bold red", Status.FAILED, "error", Exit.FINDINGS),
    Verdict.INCONCLUSIVE: Shown("?", "bold yellow", Status.ERROR, "warning", Exit.NOT_MEASURABLE),
    Verdict.NOT_COMPARABLE: Shown("☠", "bold red", Status.ERROR, "error", Exit.NOT_MEASURABLE),
    Verdict.FAILED: Shown("☠", "bold red", Status.ERROR, "error", Exit.JOB_FAILED),
    Verdict.NOT_JUDGED: Shown("-", "bold", Status.SKIPPED, "", Exit.OK),
}


def headline(result: GateResult) -> str:
    """`REGRESSION: the uncontended step is 6.1 % slower [4.9, 7.2]; 2 counters rose`."""
    word = result.verdict.value.replace("-", " ")
    word = word if result.verdict is Verdict.NOT_JUDGED else word.upper()
    return f"{word}: {wording.clean(result.reason)}"


def number(value: float | Missing, unit: Unit) -> str:
    """A value with its unit; a dash for what was not measured."""
    if isinstance(value, Missing):
        return "–"
    return _FORMATS[unit](value)


def exactly(value: float) -> str:
    """A counter in full: `12,480`, `12.5`."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


_FORMATS = {**wording.FORMATS, "count": exactly, "samples/s": wording.rate}


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


_TITLES = {
    Assume.TIMED: "Times",
    Assume.SHARE: "Shares of the step",
    Assume.EXACT: "Counted per step",
    Assume.TIGHT: "Memory and collections",
    Assume.INFO: "For information",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One judgement in words."""

    mark: str
    label: str
    before: str
    after: str
    change: str
    reason: str


@dataclass(frozen=True, slots=True)
class Group:
    """Judgements of one kind."""

    title: str
    lines: tuple[Line, ...]
    rest: str
    """What is left out: `48 more are the same`; "" when nothing is."""


@dataclass(frozen=True, slots=True)
class GateContent:
    """All that a renderer draws."""

    headline: str
    arms: str
    groups: tuple[Group, ...]
    parts: tuple[tuple[str, str, str, str], ...]
    """Part of the step, before, after, difference."""
    why_title: str
    why: tuple[str, ...]
    notes: tuple[str, ...]
    recordings: tuple[str, ...]


def prepare_gate(result: GateResult, verbose: bool = False) -> GateContent:
    """With `verbose`, what is the same is listed too."""
    why = result.why or Why()
    pairs = max((len(values) for values in result.pairs.values()), default=0)
    measured = f", {wording.plural(pairs, 'pair')} of launches" if pairs else ""
    took = f" in {wording.elapsed(result.seconds)}" if result.seconds else ""
    return GateContent(
        headline(result),
        wording.clean(f"before: {result.before.name} · now: {result.after.name}{measured}{took}"),
        tuple(_groups(result.judgements, verbose, bool(pairs))),
        tuple(
            (
                name.replace("_", " "),
                wording.duration(old),
                wording.duration(new),
                f"{'+' if new >= old else '-'}{wording.duration(abs(new - old))}",
            )
            for name, old, new in why.parts
        ),
        "Why (parts of the step: one launch of each arm)"
        if result.verdict is Verdict.REGRESSION
        else "What else differs",
        tuple(
            wording.clean(text)
            for text in (
                *why.counters,
                *(f"new finding: {text}" for text in why.findings),
                *(f"no longer found: {text}" for text in why.gone),
            )
        ),
        tuple(wording.clean(note) for note in result.notes),
        tuple(
            wording.clean(f"{name}: {arm.recording}")
            for name, arm in (("before", result.before), ("now", result.after))
            if arm.recording
        ),
    )


def _groups(judgements: Sequence[Judgement], verbose: bool, paired: bool) -> list[Group]:
    found = []
    budgets = [j for j in judgements if j.is_budget]
    for kind, title in _TITLES.items():
        mine = [j for j in judgements if j.assume is kind and not j.is_budget]
        folds = not verbose and kind is Assume.EXACT
        shown = [j for j in mine if _is_told(j, folds, verbose)]
        same = sum(j.verdict is Verdict.PASS for j in mine if j not in shown)
        unseen = len(mine) - len(shown) - same
        rest = [wording.plural(same, "is the same", "are the same")] if same else []
        rest += [f"{unseen} could not be compared (--verbose says why)"] if unseen else []
        if mine:
            if kind is Assume.TIMED and paired:
                title += " (the change is that within pairs of launches)"
            found.append(Group(title, tuple(_line(j) for j in shown), "; ".join(rest)))
    if budgets:
        found.append(Group("Budgets", tuple(_line(j) for j in budgets), ""))
    return found


def _is_told(judgement: Judgement, folds: bool, verbose: bool) -> bool:
    if verbose:
        return True
    if judgement.verdict is Verdict.NOT_JUDGED:
        return judgement.change is not None and not (folds and judgement.change == 0)
    return not (folds and judgement.verdict is Verdict.PASS)


def _line(judgement: Judgement) -> Line:
    decided = judgement.verdict is not Verdict.NOT_JUDGED
    reason = judgement.reason if judgement.gates or not decided else f"{judgement.reason} (shown only)"
    return Line(
        SHOWN[judgement.verdict].mark,
        wording.clean(judgement.label),
        number(judgement.before, judgement.unit),
        number(judgement.after, judgement.unit),
        change(judgement),
        wording.clean(reason),
    )
