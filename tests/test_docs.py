"""The documents say what the program says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from perfdoctor.diagnosis.registry import discover

DOCS = Path(__file__).parent.parent / "docs"
PAGES: dict[str, str] = runpy.run_path(str(DOCS / "generate.py"))["pages"]()
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_a_check_is_current(name: str) -> None:
    assert (DOCS / "checks" / name).read_text() == PAGES[name], "run `make docs`"


def test_no_page_is_left_of_a_check_that_is_gone() -> None:
    assert {path.name for path in (DOCS / "checks").glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("document", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(document: str) -> None:
    broken = [link for link in LINK.findall((DOCS / document).read_text()) if not (DOCS / link).exists()]
    assert broken == []


def test_every_check_is_found_by_a_symptom() -> None:
    index = (DOCS / "symptoms.md").read_text()
    assert [entry.check.code for entry in discover() if f"(checks/{entry.check.code}-" not in index] == []
