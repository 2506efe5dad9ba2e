"""The README says what there is, and briefly."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.diagnosis.registry import discover
from perfdoctor.exits import Exit

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_a_newcomer_reads_it_in_three_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_every_check_is_in_the_table() -> None:
    text = README.read_text()
    rows = [f"| {entry.check.code} | {entry.check.name} | " for entry in discover()]
    assert [row for row in rows if row not in text] == []


def test_every_exit_code_is_in_the_table() -> None:
    text = README.read_text()
    assert all(f"| {int(code)} | " in text for code in Exit)
