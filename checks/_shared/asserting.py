"""Reads of tensors whose only purpose is to test them. PD16 judges them, and the checks of reads leave them to it."""

from __future__ import annotations

from perfdoctor.api.quantities import CallSite

from .lines import key
from .reads import of_the_job


def asserting(calls: tuple[CallSite, ...]) -> tuple[CallSite, ...]:
    """Reads by an `assert`, or by a search for NaN and infinity, the dearest first."""
    return tuple(call for call in of_the_job(calls) if call.purpose)


def asserting_lines(calls: tuple[CallSite, ...]) -> set[tuple[str, int]]:
    """Their lines."""
    return {key(call.site) for call in asserting(calls)}
