"""Writes docs/checks/*.md from the docstrings and limits of the checks: `make docs`. A test holds them current."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.diagnosis.registry import discover
from perfdoctor.report.explain import explain_markdown

CHECKS = Path(__file__).parent / "checks"
_HEAD = "<!-- Made by `make docs` from {module}; `perfdoctor explain {code}` prints the same. -->\n"


def pages() -> dict[str, str]:
    """File name -> text, one page per check."""
    return {
        f"{entry.check.code}-{entry.check.name}.md": _HEAD.format(
            module=entry.check.examine.__module__.replace("perfdoctor.checks.", "checks/") + ".py",
            code=entry.check.code,
        )
        + "\n"
        + explain_markdown(entry.doc, entry.check)
        for entry in discover()
    }


if __name__ == "__main__":
    CHECKS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (CHECKS / name).write_text(text)
