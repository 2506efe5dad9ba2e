"""Writes docs/checks/*.md from the docstrings and limits of the checks, and docs/trust.md: `make docs`. A test holds
them current."""

from __future__ import annotations

import sys
from pathlib import Path

from perfdoctor.diagnosis.registry import discover
from perfdoctor.diagnosis.trust import PAGES
from perfdoctor.report.explain import explain_markdown, trust_markdown

CHECKS = Path(__file__).parent / "checks"
TRUST = Path(__file__).parent / "trust.md"
_HEAD = "<!-- Made by `make docs` from {module}; `perfdoctor explain {code}` prints the same. -->\n"


def pages() -> dict[str, str]:
    """File name -> text, one page per check."""
    return {
        f"{entry.check.code}-{entry.check.name}.md": _HEAD.format(
            module=_source(entry.check.examine.__module__),
            code=entry.check.code,
        )
        + "\n"
        + explain_markdown(entry.doc, entry.check)
        for entry in discover()
    }


def _source(module: str) -> str:
    """`checks/gc.py`, `checks/etl/__init__.py`."""
    file = Path(sys.modules[module].__file__ or "")
    return file.relative_to(Path(__file__).parent.parent).as_posix()


def trust() -> str:
    """The page about what limits the numbers of a run."""
    head = (
        "<!-- Made by `make docs` from perfdoctor/diagnosis/trust.py; `perfdoctor explain PD92` prints the same. -->\n"
        "\n# How far to trust a run\n\nWhat a report says under this title is no finding about the job, but about the "
        "numbers themselves.\n"
    )
    return "\n".join([head, *(trust_markdown(code) for code in PAGES)])


if __name__ == "__main__":
    CHECKS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (CHECKS / name).write_text(text)
    TRUST.write_text(trust())
