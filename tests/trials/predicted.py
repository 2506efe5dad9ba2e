"""Findings as plans of trials see them: what their fix may save, and which remedies try it."""

from __future__ import annotations

from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Part, Savings, Severity


def finding(name: str, low_ms: float, high_ms: float, *remedies: str) -> Finding:
    return Finding(
        id=f"PD99.{name}",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        message="it is slow",
        evidence=(),
        fix=Fix("make it fast", remedies=remedies),
        savings=Savings(high_ms, low_ms, high_ms, 0.1, "a guess", Part.COMPUTE),
    )
