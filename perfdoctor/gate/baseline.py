"""A stored baseline: what launches gave, kept launch by launch in a file that is committed. Pure: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from statistics import stdev
from typing import Any, cast

from ..diagnosis.findings import Finding
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from .compare import Tolerances, compare
from .decision import trimmed_mean
from .findings import new_findings
from .fingerprint import Fingerprint, differences, torch_minor
from .metrics import Metrics
from .model import Assume, GateResult, Judgement, Metric, Side, Verdict, overall
from .summary import decisive

SCHEMA = "perfdoctor.baseline/1"
DIGITS = 4
"""Of a time: more is noise, and noise makes diffs."""
LEAST_LAUNCHES = 8
"""For times: fewer do not say how much they vary."""
LEAST_NOW = 2
"""Launches to be compared with them: one may have been unlucky."""
LEAST_TOLERANCE = 0.15
"""Against stored times: a machine is not the same one a week later ..."""
ADVISORY = 0.30
"""... and on another one only this much is worth a word."""
_NAMED = 4
"""Metrics in the gate's one sentence; the report lists them all."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One metric of a baseline."""

    unit: str
    assume: str
    label: str
    launches: tuple[float, ...]
    """The value of each launch."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding that was there when the baseline was written."""

    fingerprint: str
    id: str
    place: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """The content of the file."""

    written: date
    job: str
    configuration: Fingerprint
    machine: Fingerprint
    metrics: Mapping[str, Stored]
    findings: tuple[KnownFinding, ...] = field(default=())

    @property
    def known(self) -> frozenset[str]:
        """Fingerprints of the findings."""
        return frozenset(finding.fingerprint for finding in self.findings)


def make(
    written: date,
    job: str,
    configuration: Fingerprint,
    machine: Fingerprint,
    launches: Sequence[Metrics],
    findings: Sequence[Finding],
) -> Baseline:
    """From the metrics of each launch; what no launch has is left out."""
    names = dict.fromkeys(name for launch in launches for name in launch)
    stored = {}
    for name in names:
        metric = next(launch[name] for launch in launches if name in launch)
        values = [launch[name].value for launch in launches if name in launch]
        numbers = tuple(_rounded(v, metric.assume) for v in values if not isinstance(v, Missing))
        if numbers:
            stored[name] = Stored(metric.unit, metric.assume.value, metric.title, numbers)
    return Baseline(written, job, configuration, machine, stored, known_findings(findings))


def known_findings(findings: Sequence[Finding]) -> tuple[KnownFinding, ...]:
    """As a baseline keeps them; the place is for readers, lines move."""
    found = {
        f.fingerprint: KnownFinding(
            f.fingerprint, f.id, f"{f.location.file}::{f.location.function}" if f.location else ""
        )
        for f in findings
    }
    return tuple(sorted(found.values(), key=lambda finding: (finding.id, finding.fingerprint)))


def pruned(baseline: Baseline, findings: Sequence[Finding]) -> tuple[Baseline, tuple[KnownFinding, ...]]:
    """Without the findings that are gone, and those."""
    there = {finding.fingerprint for finding in findings}
    kept = tuple(known for known in baseline.findings if known.fingerprint in there)
    return replace(baseline, findings=kept), tuple(known for known in baseline.findings if known not in kept)


def _rounded(value: float, assume: Assume) -> float:
    if assume in (Assume.EXACT, Assume.TIGHT):
        return int(value) if float(value).is_integer() else float(value)
    return float(f"{value:.{DIGITS}g}")


# ---------------------------------------------------------------------------------------------------------
# The file


def render(baseline: Baseline) -> str:
    """JSON with sorted keys and one metric per line, so that a change of one metric is a change of one line."""

    def line(value: object) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)

    def block(rows: Sequence[str], brackets: str) -> str:
        return (
            f"{brackets[0]}\n" + ",\n".join(f"    {row}" for row in rows) + f"\n  {brackets[1]}" if rows else brackets
        )

    metrics = [
        f"{line(name)}: " + line({"assume": m.assume, "label": m.label, "launches": list(m.launches), "unit": m.unit})
        for name, m in sorted(baseline.metrics.items())
    ]
    findings = [line({"fingerprint": f.fingerprint, "id": f.id, "place": f.place}) for f in baseline.findings]
    parts = {
        "configuration": block([f"{line(k)}: {line(v)}" for k, v in sorted(baseline.configuration.items())], "{}"),
        "findings": block(findings, "[]"),
        "job": line(baseline.job),
        "machine": block([f"{line(k)}: {line(v)}" for k, v in sorted(baseline.machine.items())], "{}"),
        "metrics": block(metrics, "{}"),
        "schema": line(SCHEMA),
        "written": line(baseline.written.isoformat()),
    }
    return "{\n" + ",\n".join(f'  "{key}": {value}' for key, value in parts.items()) + "\n}\n"


def parse(text: str, place: str) -> Baseline:
    """Raises PerfdoctorError for a file that is no baseline, or one of a newer perfdoctor."""
    try:
        raw = cast("dict[str, Any]", json.loads(text))
        schema = str(raw["schema"])
        if schema != SCHEMA and schema.startswith("perfdoctor.baseline/"):
            raise PerfdoctorError(
                f"{place} was written by a newer perfdoctor ({schema})",
                slug="newer-baseline",
                advice="upgrade perfdoctor, or write the file again",
            )
        if schema != SCHEMA:
            raise ValueError(schema)
        return Baseline(
            date.fromisoformat(raw["written"]),
            str(raw["job"]),
            {str(k): str(v) for k, v in raw["configuration"].items()},
            {str(k): str(v) for k, v in raw["machine"].items()},
            {
                str(name): Stored(m["unit"], Assume(m["assume"]).value, m["label"], tuple(map(_number, m["launches"])))
                for name, m in raw["metrics"].items()
            },
            tuple(KnownFinding(f["fingerprint"], f["id"], f["place"]) for f in raw["findings"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PerfdoctorError(
            f"{place} is not a baseline of perfdoctor",
            slug="not-a-baseline",
            advice="write one with `perfdoctor baseline write SCRIPT`, and resolve merge conflicts by writing it again",
        ) from error


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value


# ---------------------------------------------------------------------------------------------------------
# Against it


def launches_of(baseline: Baseline) -> list[Metrics]:
    """The stored metrics, launch by launch."""
    count = max((len(stored.launches) for stored in baseline.metrics.values()), default=0)
    return [
        {
            name: Metric(name, cast("Any", s.unit), Assume(s.assume), s.launches[number], s.label)
            for name, s in baseline.metrics.items()
            if number < len(s.launches)
        }
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Now:
    """What the job gave today."""

    today: date
    side: Side
    configuration: Fingerprint
    machine: Fingerprint
    launches: Sequence[Metrics]
    findings: Sequence[Finding]
    """Those that count, by `--fail-on`."""


def judge(baseline: Baseline, place: str, now: Now, tolerances: Tolerances, max_age_days: int) -> GateResult:
    """Counters and memory in full; times only where they can be compared, otherwise for information."""
    before = Side(place)
    unlike = differences(baseline.configuration, now.configuration)
    if unlike:
        return GateResult(
            Verdict.NOT_COMPARABLE,
            f"not the same work: {'; '.join(unlike)}",
            before,
            now.side,
        )
    notes = []
    judgements = list(compare(_counted(launches_of(baseline)), _counted(now.launches), tolerances))
    if torch_minor(baseline.machine) != torch_minor(now.machine):
        judgements = [replace(j, gates=False) for j in judgements]
        notes.append(
            f"torch {torch_minor(baseline.machine)} then, {torch_minor(now.machine)} now: counters are shown only; "
            f"`perfdoctor baseline write` makes them count again"
        )
    why_not = _why_times_do_not_count(baseline, now, max_age_days)
    if why_not:
        notes.append(f"times are shown only: {why_not}")
    judgements += _timed(baseline, now, gates=not why_not)
    judgements += new_findings(baseline.known, now.findings)
    verdict = overall(judgements)
    return GateResult(verdict, reason(verdict, judgements), before, now.side, tuple(judgements), notes=tuple(notes))


def _counted(launches: Sequence[Metrics]) -> list[Metrics]:
    return [{n: m for n, m in launch.items() if m.assume in (Assume.EXACT, Assume.TIGHT)} for launch in launches]


def _why_times_do_not_count(baseline: Baseline, now: Now, max_age_days: int) -> str:
    other = differences(baseline.machine, now.machine)
    if other:
        return f"another machine ({'; '.join(other[:3])})"
    age = (now.today - baseline.written).days
    if age > max_age_days:
        return f"the baseline's age in days is {age}, and at most {max_age_days} count (`--max-age`)"
    if len(now.launches) < LEAST_NOW:
        return f"{now.side.name} holds one launch, {LEAST_NOW} are needed"
    count = len(baseline.metrics["step_time_ms"].launches) if "step_time_ms" in baseline.metrics else 0
    if count < LEAST_LAUNCHES:
        need = f"`baseline write --launches {LEAST_LAUNCHES}`"
        return f"launches in the baseline: {count} of the {LEAST_LAUNCHES} needed ({need})"
    return ""


def _timed(baseline: Baseline, now: Now, gates: bool) -> list[Judgement]:
    found = []
    for name, stored in baseline.metrics.items():
        if stored.assume not in (Assume.TIMED.value, Assume.SHARE.value, Assume.INFO.value):
            continue
        values = [launch[name].value for launch in now.launches if name in launch]
        numbers = [value for value in values if not isinstance(value, Missing)]
        old = trimmed_mean(stored.launches)
        assume, unit = Assume(stored.assume), cast("Any", stored.unit)
        if not numbers or assume is not Assume.TIMED or old <= 0:
            after = trimmed_mean(numbers) if numbers else Missing("not measured")
            change = None if isinstance(after, Missing) or assume is Assume.TIMED else after - old
            found.append(
                Judgement(
                    name,
                    stored.label,
                    unit,
                    assume,
                    old,
                    after,
                    Verdict.NOT_JUDGED,
                    "for information",
                    change,
                    gates=False,
                )
            )
            continue
        spread = stdev(stored.launches) / old if len(stored.launches) > 1 else 0.0
        tolerance = max(3 * spread, LEAST_TOLERANCE) if gates else ADVISORY
        ratios = [value / old - 1 for value in numbers]
        said = f"launches: {len(stored.launches)} before, {len(numbers)} now; tolerance {100 * tolerance:.0f} %"
        if min(ratios) > tolerance:
            verdict = Verdict.REGRESSION
        elif trimmed_mean(ratios) <= tolerance:
            verdict = Verdict.PASS
        else:
            verdict, said = Verdict.INCONCLUSIVE, f"{said}; not every launch was slower"
        found.append(
            Judgement(
                name, stored.label, unit, assume, old, trimmed_mean(numbers), verdict, said, trimmed_mean(ratios),
                min(ratios), max(ratios), gates,
            )
        )  # fmt: skip
    return found


def reason(verdict: Verdict, judgements: Sequence[Judgement]) -> str:
    """The whole gate in one sentence."""
    if verdict is Verdict.PASS:
        return "nothing that counts got worse"
    return "; ".join(decisive(verdict, judgements, _NAMED)) or "nothing was measured"
