"""The report for programs: JSON with a version, described by `report.schema.json`.

Within a version fields are only added. Numbers are plain and in the unit that their name or `unit` says;
sentences are complete, with their numbers filled in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from ..diagnosis.findings import (
    CheckResult,
    Combined,
    Diagnosis,
    Finding,
    IntegrityNote,
    Location,
    Measurement,
    SuppressedFinding,
)
from ..diagnosis.measured import Trials
from ..evidence.model import DeviceTimeline, Evidence, Job, Line, Missing, Step
from ..gate import fingerprint
from ..gate.metrics import metrics
from ..version import VERSION
from . import wording
from .verdict import verdict

# perfdoctor.report/1: the first version (0.1.0)
SCHEMA = "perfdoctor.report/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

DIGITS = 9
HOT_LINES = 10
"""Significant digits of a float: far more than is measured, and the last bits of a sum stay out of diffs."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def render_json(diagnosis: Diagnosis) -> str:
    """The report as a JSON document, ending in a newline; the same diagnosis gives the same bytes."""
    return json.dumps(document(diagnosis), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def load_schema() -> dict[str, Json]:
    """The JSON Schema (2020-12) that every report of this version meets."""
    return cast("dict[str, Json]", json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def document(diagnosis: Diagnosis) -> dict[str, Json]:
    """The report as plain dictionaries and lists."""
    evidence = diagnosis.evidence
    return {
        "schema": SCHEMA,
        "perfdoctor": VERSION,
        "verdict": _text(verdict(diagnosis)),
        "anatomy": _anatomy(evidence.step, evidence.device),
        "hot_lines": _hot_lines(evidence.hot_lines),
        "checks": [_check(result) for result in diagnosis.checks],
        "ranked": [finding.fingerprint for finding in diagnosis.ranked],
        "unexplained": plain(diagnosis.unexplained),
        "combined": _combined(diagnosis.combined),
        "trials": _trials(diagnosis.trials),
        "environment": _environment(evidence),
        "launch": _launch(evidence),
        "overhead": plain(evidence.own_cost),
        "integrity": {
            "notes": [_note(note) for note in diagnosis.integrity],
            "job_end": plain(evidence.job.end),
            "probe_faults": plain(evidence.probe_faults),
            "contention": plain(evidence.host),
        },
    }


def plain(value: object) -> Json:
    """A contract type as JSON: fields by name, Missing as its reason and remedy, no NaN and no infinity."""
    if isinstance(value, Missing):
        return {"missing": _text(value.reason), "remedy": _text(value.remedy)}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    raise TypeError(f"no JSON for {type(value).__name__}")


def _text(text: str) -> str:
    """Lone surrogates, which undecodable file names bring, cannot be written as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _filled(template: str, measurements: tuple[Measurement, ...]) -> str:
    return _text(wording.fill(template, measurements))


def _reason(text: str, measurements: tuple[Measurement, ...]) -> str:
    return _text(wording.fill_reason(text, measurements))


def _anatomy(step: Step | Missing, device: DeviceTimeline | Missing) -> dict[str, Json]:
    if isinstance(step, Missing):
        return cast("dict[str, Json]", plain(step))
    return {
        "boundary": step.boundary,
        **{
            name: plain(getattr(step, name))
            for name in (
                "step_ms",
                "median_ms",
                "mad_ms",
                "low_ms",
                "high_ms",
                "count",
                "seconds",
                "warmup",
                "windowed",
                "irregular",
                "irregular_ms",
                "cpu_ms",
                "run_delay_ms",
                "micro_batches",
                "samples",
                "first_step_s",
                "slope",
            )
        },
        "parts": {name: plain(ms) for name, ms in step.parts.as_dict().items()},
        "device": _device(device),
    }


def _device(device: DeviceTimeline | Missing) -> Json:
    if isinstance(device, Missing):
        return plain(device)
    described = cast("dict[str, Json]", plain(device))
    return {**described, "total_ms": plain(device.total_ms), "bound": device.bound}


def _hot_lines(lines: tuple[Line, ...] | Missing) -> Json:
    if isinstance(lines, Missing):
        return plain(lines)
    return [
        {
            "location": {"file": _text(line.site.file), "line": line.site.line, "function": _text(line.site.function)},
            "part": line.part,
            "ms_per_step": plain(line.ms_per_step),
            "ops_per_step": plain(line.ops_per_step),
            "runs_per_step": plain(line.runs_per_step),
        }
        for line in lines[:HOT_LINES]
    ]


def _check(result: CheckResult) -> dict[str, Json]:
    outcome = result.outcome
    return {
        "code": result.code,
        "name": result.name,
        "title": result.title,
        "outcome": outcome.kind.value,
        "reason": _reason(outcome.reason, outcome.measurements),
        "measurements": _measurements(outcome.measurements),
        "findings": [_finding(finding) for finding in outcome.findings],
        "suppressed": [_suppressed(suppressed) for suppressed in result.suppressed],
    }


def _finding(finding: Finding) -> dict[str, Json]:
    numbers, fix, savings = finding.evidence, finding.fix, finding.savings
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": _filled(finding.message, numbers),
        "reasoning": _filled(finding.reasoning, numbers),
        "evidence": _measurements(numbers),
        "location": _location(finding.location),
        "fix": {
            "text": _filled(fix.text, numbers),
            "code": _filled(fix.code, numbers),
            "language": fix.language,
            "risk": _filled(fix.risk, numbers),
            "remedies": list(fix.remedies),
        },
        "savings": {
            "ceiling_ms": plain(savings.ceiling_ms),
            "low_ms": plain(savings.low_ms),
            "high_ms": plain(savings.high_ms),
            "share": plain(savings.share),
            "claimed": plain(savings.claimed),
            "method": _filled(savings.method, numbers),
            "part": savings.part.value,
        },
        "fingerprint": finding.fingerprint,
        "rank_note": _text(finding.rank_note),
    }


def _suppressed(suppressed: SuppressedFinding) -> dict[str, Json]:
    return {**_finding(suppressed.finding), "suppressed_because": _text(suppressed.reason)}


def _location(location: Location | None) -> Json:
    return None if location is None else plain(location)


def _measurements(measurements: tuple[Measurement, ...]) -> list[Json]:
    return [
        {"name": m.name, "value": plain(m.value), "unit": m.unit, "label": _text(wording.label(m))}
        for m in measurements
    ]


def _combined(together: Combined | None) -> Json:
    return None if together is None else plain(together)


def _trials(trials: Trials | None) -> Json:
    """Null when no remedy was tried. A `finding` of a trial is a fingerprint."""
    return None if trials is None else plain(trials)


def _note(note: IntegrityNote) -> dict[str, Json]:
    return {
        "code": note.code,
        "name": note.name,
        "severity": note.severity.value,
        "message": _reason(note.message, note.measurements),
        "measurements": _measurements(note.measurements),
    }


def _environment(evidence: Evidence) -> dict[str, Json]:
    machine = cast("dict[str, Json]", plain(evidence.machine))
    machine["usable_cpus"] = plain(evidence.machine.usable_cpus)
    return {"rank": evidence.rank, "machine": machine, "job": _job(evidence.job)}


def _launch(evidence: Evidence) -> dict[str, Json]:
    """What `perfdoctor gate --from` compares, in full: counts of bytes have more digits than a measurement."""
    found: dict[str, Json] = {
        name: {
            "label": metric.title,
            "unit": metric.unit,
            "assume": metric.assume.value,
            "value": plain(metric.value) if isinstance(metric.value, Missing) else _whole(metric.value),
        }
        for name, metric in metrics(evidence).items()
    }
    return {
        "configuration": _table(fingerprint.configuration(evidence)),
        "machine": _table(fingerprint.machine(evidence)),
        "metrics": found,
    }


def _table(table: Mapping[str, str]) -> dict[str, Json]:
    """Names and texts."""
    return {_text(name): _text(value) for name, value in table.items()}


def _whole(value: float) -> Json:
    return int(value) if float(value).is_integer() else plain(value)


def _job(job: Job) -> dict[str, Json]:
    """The job without its end, which is under `integrity`; what has no order of its own is sorted."""
    described = cast("dict[str, Json]", plain(job))
    del described["end"]
    described["frameworks"] = [_text(name) for name in sorted(job.frameworks)]
    described["environment"] = {_text(name): _text(value) for name, value in sorted(job.environment)}
    return described
