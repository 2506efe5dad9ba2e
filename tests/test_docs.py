"""The documents say what the program says."""

from __future__ import annotations

import html
import re
import runpy
from pathlib import Path

import pytest

from perfdoctor.commands import explain
from perfdoctor.diagnosis import integrity
from perfdoctor.diagnosis.registry import discover

DOCS = Path(__file__).parent.parent / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
PAGES: dict[str, str] = GENERATE["pages"]()
DRAWN: dict[str, str] = GENERATE["pictures"]()
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_a_check_is_current(name: str) -> None:
    assert (DOCS / "checks" / name).read_text() == PAGES[name], "run `make docs`"


def test_the_page_about_trust_is_current() -> None:
    assert (DOCS / "trust.md").read_text() == GENERATE["trust"](), "run `make docs`"


def test_the_page_of_options_shows_the_command_line_as_it_is() -> None:
    assert (DOCS / "command-line.md").read_text() == GENERATE["options"](), "run `make docs`"


def test_the_schema_of_reports_is_current() -> None:
    assert (DOCS / "report.schema.json").read_text() == GENERATE["schema"](), "run `make docs`"


def words(picture: str) -> str:
    """What an SVG shows, without how rich draws it, which differs between its versions."""
    return "".join(html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)).replace(
        "\xa0", " "
    )


@pytest.mark.parametrize("name", DRAWN)
def test_the_picture_of_a_report_is_current(name: str) -> None:
    kept = (DOCS / "pictures" / name).read_text()
    assert words(kept) == words(DRAWN[name]), "run `make docs`"
    assert "What to fix, largest saving first" in words(kept)


def test_no_page_is_left_of_a_check_that_is_gone() -> None:
    assert {path.name for path in (DOCS / "checks").glob("*.md")} == set(PAGES)


@pytest.mark.parametrize("document", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(document: str) -> None:
    broken = [link for link in LINK.findall((DOCS / document).read_text()) if not (DOCS / link).exists()]
    assert broken == []


def test_every_check_is_found_by_a_symptom() -> None:
    index = (DOCS / "symptoms.md").read_text()
    assert [entry.check.code for entry in discover() if f"(checks/{entry.check.code}-" not in index] == []


def test_every_code_that_limits_a_run_is_explained() -> None:
    sources = (DOCS.parent / "perfdoctor" / "diagnosis").glob("*.py")
    codes = {code for path in sources for code in re.findall(r'"(PD9\d)"', path.read_text())}
    assert codes == set(integrity.PAGES)
    for code in codes:
        assert explain.render(code.lower(), False, "text").startswith(f"{code}: ")
