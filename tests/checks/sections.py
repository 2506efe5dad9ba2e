"""What every check's documentation has to have."""

from __future__ import annotations

from perfdoctor.report.explain import parse

SECTIONS = (
    "What it looks at",
    "Why it costs time",
    "Example",
    "How to fix",
    "When it stays silent",
    "Limits",
    "References",
)
"""The sections of every check's docstring, in this order; each title is underlined with dashes."""


def missing_sections(docstring: str) -> tuple[str, ...]:
    """The fixed sections that are absent, empty or out of order."""
    wanted = [s.title for s in parse(docstring).sections if s.title in SECTIONS and s.body]
    in_order = iter(wanted)
    return tuple(title for title in SECTIONS if title not in in_order)
