"""Writes what is made from the program: pages of checks and of trust, the JSON Schema of reports: `make docs`. Tests
hold them current."""

from __future__ import annotations

import json
from pathlib import Path

from perfdoctor.diagnosis.registry import discover
from perfdoctor.diagnosis.trust import PAGES
from perfdoctor.report.explain import explain_markdown, trust_markdown
from perfdoctor.report.jsonreport import load_schema

CHECKS = Path(__file__).parent / "checks"
TRUST = Path(__file__).parent / "trust.md"
SCHEMA = Path(__file__).parent / "report.schema.json"
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


def trust() -> str:
    """The page about what limits the numbers of a run."""
    head = (
        "<!-- Made by `make docs` from perfdoctor/diagnosis/trust.py; `perfdoctor explain PD92` prints the same. -->\n"
        "\n# How far to trust a run\n\nWhat a report says under this title is no finding about the job, but about the "
        "numbers themselves.\n"
    )
    return "\n".join([head, *(trust_markdown(code) for code in PAGES)])


def schema() -> str:
    """What `--output json` writes, for other programs."""
    return json.dumps(load_schema(), indent=2) + "\n"


if __name__ == "__main__":
    CHECKS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (CHECKS / name).write_text(text)
    TRUST.write_text(trust())
    SCHEMA.write_text(schema())
