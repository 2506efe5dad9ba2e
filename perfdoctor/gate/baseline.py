"""A stored baseline: what launches gave, kept launch by launch in a file that is committed. Pure: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any, cast

from ..diagnosis.findings import Finding
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from .fingerprint import Fingerprint
from .metrics import Metrics
from .model import Assume, Metric, Unit

SCHEMA = "perfdoctor.baseline/1"
REPORT = "perfdoctor.report/"
GATE = "perfdoctor.gate/"
DIGITS = 4
"""Of a time: more is noise, and noise makes diffs."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One metric of a baseline."""

    unit: Unit
    assume: Assume
    label: str
    launches: tuple[float, ...]
    """The value of each launch."""

    def metric(self, name: str, value: float) -> Metric:
        """The metric with a value of its own."""
        return Metric(name, self.unit, self.assume, value, self.label)


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

    def as_launches(self) -> list[Metrics]:
        """The stored metrics, launch by launch."""
        count = max((len(stored.launches) for stored in self.metrics.values()), default=0)
        stored = self.metrics.items()
        return [
            {name: s.metric(name, s.launches[n]) for name, s in stored if n < len(s.launches)} for n in range(count)
        ]


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
            stored[name] = Stored(metric.unit, metric.assume, metric.title, numbers)
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

    metrics = [f"{line(name)}: {line(asdict(metric))}" for name, metric in sorted(baseline.metrics.items())]
    findings = [line(asdict(finding)) for finding in baseline.findings]
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
            _texts(raw["configuration"]),
            _texts(raw["machine"]),
            {
                str(name): Stored(m["unit"], Assume(m["assume"]), m["label"], tuple(map(_number, m["launches"])))
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


# ---------------------------------------------------------------------------------------------------------
# A report of `perfdoctor check --output json`, as a baseline of one launch


def schema_of(text: str) -> str:
    """What a JSON document says it is; "" when it does not."""
    try:
        document = json.loads(text)
    except ValueError:
        return ""
    return str(document.get("schema", "")) if isinstance(document, dict) else ""


def read_report(text: str, place: str) -> Baseline:
    """Raises PerfdoctorError for a report that holds no launch: one of an older perfdoctor, or cut."""
    try:
        document = json.loads(text)
        launch, job = document["launch"], document["environment"]["job"]
        return Baseline(
            date.fromisoformat(str(job["started"])[:10]),
            place,
            _texts(launch["configuration"]),
            _texts(launch["machine"]),
            {
                str(name): Stored(metric["unit"], Assume(metric["assume"]), metric["label"], (metric["value"],))
                for name, metric in launch["metrics"].items()
                if isinstance(metric["value"], int | float)
            },
            tuple(_finding(finding) for check in document["checks"] for finding in check["findings"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PerfdoctorError(
            f"{place} is a report without the numbers of its launch",
            slug="report-without-launch",
            advice="it was written by an older perfdoctor: name the recording instead, a directory in .perfdoctor/runs",
        ) from error


def _finding(finding: Mapping[str, Any]) -> KnownFinding:
    place = finding.get("location")
    where = f"{place['file']}::{place['function']}" if place else ""
    return KnownFinding(str(finding["fingerprint"]), str(finding["id"]), where)


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in table.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value
