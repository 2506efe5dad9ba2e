"""The README and the page of all options show the command line as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from perfdoctor.diagnosis.registry import discover
from perfdoctor.exits import Exit

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
OPTIONS = ROOT / "docs" / "command-line.md"


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


def test_every_command_has_its_help_on_the_page_of_options() -> None:
    commands = re.findall(r"^  (\w+)  ", _help().partition("Commands:")[2], flags=re.M)
    assert len(commands) > 5
    blocks = [block.strip() for block in re.findall(r"```\n(.*?)```", OPTIONS.read_text(), flags=re.S)]
    assert [words for words in ((), *((name,) for name in commands)) if _help(*words) not in blocks] == []


def test_a_newcomer_reads_it_in_three_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_every_check_is_in_the_table() -> None:
    text = README.read_text()
    rows = [f"| {entry.check.code} | {entry.check.name} | " for entry in discover()]
    assert [row for row in rows if row not in text] == []


def test_every_exit_code_is_in_the_table() -> None:
    text = README.read_text()
    assert all(f"| {int(code)} | " in text for code in Exit)
