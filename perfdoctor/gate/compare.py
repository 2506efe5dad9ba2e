"""What can be counted, and memory: before against after. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType

from ..evidence.model import Missing
from .model import Assume, Judgement, Metric, Verdict

COLLAPSE = 0.2
"""A counter that falls by more than this is no success: the job does less work than before."""
WORK = ("aten_ops",)
"""The counters whose collapse says so: fewer copies or allocations are what one wants."""
RSS_MARGIN = 0.02
"""Peak memory of one program varies by 0.4 % over launches."""
RSS_LEAST = 16 << 20
TORCH_MARGIN = 0.01
TORCH_LEAST = 1 << 20
COLLECTIONS_MARGIN = 0.05
COLLECTIONS_LEAST = 1.0
"""Per 100 steps: where a collection falls among the steps counted is chance."""

NOT_EXACT = " (differs between launches, so not exact)"
EXACT_PAIRS = 4
"""One collection more or less is chance, in one pair; the same one in that many is not."""
EQUAL = 1e-9
"""Counts per 100 steps are quotients of whole numbers."""

NOTHING_MORE: Mapping[str, float] = MappingProxyType({})

Launches = Sequence[Mapping[str, Metric]]
"""Metrics by name, of each launch of one arm."""
Said = tuple[Verdict, str]
"""The verdict and its reason."""


def compare(before: Launches, after: Launches, allowed: Mapping[str, float] = NOTHING_MORE) -> tuple[Judgement, ...]:
    """Every exact and tight metric that each arm has; others are reported as they are."""
    names = dict.fromkeys(name for launch in (*before, *after) for name in launch)
    return tuple(_one(name, before, after, allowed.get(name, 0.0)) for name in names)


def _one(name: str, before: Launches, after: Launches, allowed: float) -> Judgement:
    metric = next(launch[name] for launch in (*after, *before) if name in launch)
    old, new = _values(name, before), _values(name, after)
    if isinstance(old, Missing) or isinstance(new, Missing):
        which = [f"{arm}: {value}" for arm, value in (("before", old), ("after", new)) if isinstance(value, Missing)]
        shown_old, shown_new = (value if isinstance(value, Missing) else median(value) for value in (old, new))
        verdict, reason = Verdict.NOT_JUDGED, "; ".join(which)
        return Judgement(name, metric.title, metric.unit, metric.assume, shown_old, shown_new, verdict, reason)
    if metric.assume is Assume.EXACT:
        return _judged(metric, old, new, _exact(name, old, new, allowed))
    if metric.assume is Assume.TIGHT:
        return _judged(metric, old, new, _tight(old, new, *_margin(name), ""))
    return _judged(metric, old, new, (Verdict.NOT_JUDGED, "for information"))


def _judged(metric: Metric, old: Sequence[float], new: Sequence[float], said: Said) -> Judgement:
    before, after = median(old), median(new)
    return Judgement(metric.name, metric.title, metric.unit, metric.assume, before, after, *said, after - before)


def _exact(name: str, old: Sequence[float], new: Sequence[float], allowed: float) -> Said:
    before, after = median(old), median(new)
    if max(old) - min(old) > allowed or max(new) - min(new) > allowed:
        return _tight(old, new, RSS_MARGIN, 0.0, NOT_EXACT)
    if name in WORK and after < (1 - COLLAPSE) * before:
        fell = f"fell by {100 * (1 - after / before):.0f} %: the job does less work than before"
        return Verdict.NOT_COMPARABLE, fell
    if after > before + allowed:
        return Verdict.REGRESSION, "counted exactly"
    return (Verdict.IMPROVEMENT if after < before else Verdict.PASS), "counted exactly"


def compare_pairs(metric: Metric, pairs: Sequence[tuple[float, float]], allowed: float = 0.0) -> Judgement:
    """What both arms count over the same steps of each pair of launches: exact where all pairs agree.

    `metric` says what it is; its value is not looked at.
    """
    old, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    differences = [after - before for before, after in pairs]
    if len(pairs) >= EXACT_PAIRS and max(differences) - min(differences) <= EQUAL:
        verdict = Verdict.PASS if differences[0] >= -EQUAL else Verdict.IMPROVEMENT
        verdict = Verdict.REGRESSION if differences[0] > allowed + EQUAL else verdict
        return _judged(metric, old, new, (verdict, f"counted exactly: the same in all {len(pairs)} pairs"))
    margin, least = _margin(metric.name)
    note = NOT_EXACT if len(pairs) >= EXACT_PAIRS else " (too few pairs to be exact)"
    return _judged(metric, old, new, _tight(old, new, margin, max(least, allowed), note))


def _margin(name: str) -> tuple[float, float]:
    """What may vary, relative and absolute."""
    if name.startswith("gc_collections"):
        return COLLECTIONS_MARGIN, COLLECTIONS_LEAST
    return (RSS_MARGIN, float(RSS_LEAST)) if name == "peak_rss_bytes" else (TORCH_MARGIN, float(TORCH_LEAST))


def _values(name: str, launches: Launches) -> list[float] | Missing:
    found = [launch[name].value for launch in launches if name in launch]
    if not found:
        return [0.0] if name.startswith("op:") and operators_were_counted(launches) else Missing("not measured")
    numbers = [value for value in found if not isinstance(value, Missing)]
    if numbers:
        return numbers
    missing = found[0]
    assert isinstance(missing, Missing)
    return missing


def operators_were_counted(launches: Launches) -> bool:
    """Whether an operator that is not there was called 0 times, rather than not looked for."""
    counts = [launch["aten_ops"].value for launch in launches if "aten_ops" in launch]
    return any(not isinstance(count, Missing) for count in counts)


def _tight(old: Sequence[float], new: Sequence[float], margin: float, least: float, note: str) -> Said:
    """Medians against a margin; beyond it, no launch of one arm may lie within the other's."""
    before, after = median(old), median(new)
    allowed = max(margin * abs(before), least)
    said = f"medians over launches, {len(old)} before and {len(new)} now; margin {100 * margin:.0f} %{note}"
    if after - before > allowed:
        if min(new) > max(old):
            return Verdict.REGRESSION, said
        return Verdict.INCONCLUSIVE, f"{said}; the launches overlap"
    return (Verdict.IMPROVEMENT if before - after > allowed else Verdict.PASS), said
