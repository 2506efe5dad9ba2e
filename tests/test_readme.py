"""The README shows the command line as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.diagnosis.registry import discover
from perfdoctor.exits import Exit

README = Path(__file__).parent.parent / "README.md"


def _help(*words: str) -> str:
    """What `--help` prints at 80 columns."""
    environment = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor", *words, "--help"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return done.stdout.replace("python -m perfdoctor", "perfdoctor").strip()


@pytest.mark.parametrize("words", [(), ("check",)])
def test_help_blocks_are_what_the_program_prints(words: tuple[str, ...]) -> None:
    blocks = [block.strip() for block in re.findall(r"```\n(.*?)```", README.read_text(), flags=re.S)]
    assert _help(*words) in blocks


def test_every_check_is_in_the_table() -> None:
    text = README.read_text()
    rows = [f"| {entry.check.code} | {entry.check.name} | " for entry in discover()]
    assert [row for row in rows if row not in text] == []


def test_every_exit_code_is_in_the_table() -> None:
    text = README.read_text()
    assert all(f"| {int(code)} | " in text for code in Exit)
