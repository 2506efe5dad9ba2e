"""perfdoctor's judgement of a program."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import perfdoctor.checks

import perfdoctor

from . import running
from .case import Program
from .judgement import Claim, Judgement

_PERFDOCTOR = str(Path(sys.executable).with_name("perfdoctor"))
_SOURCES = (Path(perfdoctor.__file__).parent, Path(perfdoctor.checks.__file__).parent)


def state() -> str:
    """Changes with perfdoctor's sources: a judgement of an earlier state says how it was then."""
    found = hashlib.sha256()
    for path in sorted(path for folder in _SOURCES for path in folder.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def judge(program: Program) -> Judgement:
    """`perfdoctor check` as a user would type it."""
    began = time.monotonic()
    with running.folder(program) as where:
        report = where / "report.json"
        argv = [_PERFDOCTOR, "check", "--fail-on", "never", "--output", f"json:{report}"]
        target = ["--", *running.command(program)] if program.case.launcher else [program.file]
        done = running.run([*argv, *target], program, where)
        seconds = time.monotonic() - began
        if not report.exists():
            return Judgement(failure=f"exit code {done.returncode}: {done.stderr[-1000:]}", seconds=seconds)
        return read(json.loads(report.read_text()), seconds)


def read(report: Mapping[str, Any], seconds: float = 0.0) -> Judgement:
    """A JSON report: its findings as it ranks them, then those that it does not rank."""
    step_ms = report["anatomy"].get("step_ms") or 0.0
    irregular_ms = report["anatomy"].get("irregular_ms") or 0.0
    findings = {finding["fingerprint"]: finding for check in report["checks"] for finding in check["findings"]}
    ranked = [one for one in report["ranked"] if one in findings]
    order = [*ranked, *(one for one in findings if one not in ranked)]
    claims = tuple(_claim(findings[one], step_ms, irregular_ms) for one in order)
    return Judgement(claims, unexplained=_says_so(report), seconds=seconds)


def _says_so(report: Mapping[str, Any]) -> bool:
    """Whether no check explains the time: a step was measured, and nothing graver than a note found."""
    findings = (finding for check in report["checks"] for finding in check["findings"])
    return report["unexplained"] is not None and all(finding["severity"] == "note" for finding in findings)


def _claim(finding: Mapping[str, Any], steady_ms: float, irregular_ms: float) -> Claim:
    place, savings = finding["location"] or {}, finding["savings"]
    step_ms = steady_ms + (irregular_ms if savings["part"] == "epoch" else 0.0)
    low, high = savings["low_ms"], savings["high_ms"]
    predicted = savings.get("predicted_ms")

    def faster(saved_ms: float) -> float:
        return step_ms / max(step_ms - saved_ms, 1e-3 * step_ms) if step_ms else 1.0

    return Claim(
        id=finding["id"],
        severity=finding["severity"],
        file=Path(place.get("file") or "").name,
        line=place.get("line") or 0,
        speed_up=(faster(low), faster(sum(predicted or (low, high)) / 2), faster(high)),
        ceiling=faster(savings["ceiling_ms"]),
        before_widening=(faster(predicted[0]), faster(predicted[1])) if predicted else None,
        remedies=tuple(finding["fix"]["remedies"]),
    )
