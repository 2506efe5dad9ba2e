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


PICTURED = [path for path in (DOCS.parent / "README.md", *DOCS.glob("*.md")) if "<picture>" in path.read_text()]


@pytest.mark.parametrize("page", PICTURED, ids=lambda page: page.name)
def test_every_picture_is_there_light_and_dark_and_told_in_words(page: Path) -> None:
    for picture in re.findall(r"<picture>.*?</picture>", page.read_text(), flags=re.S):
        (dark,) = re.findall(r'media="\(prefers-color-scheme: dark\)" srcset="([^"]+)"', picture)
        ((words, light),) = re.findall(r'<img alt="([^"]+)" src="([^"]+)"', picture)
        assert len(words) > 40
        assert dark != light and all((page.parent / name).stat().st_size < 250_000 for name in (dark, light))


def test_the_page_that_is_photographed_is_about_the_demo() -> None:
    page = GENERATE["page"]()
    assert "train.py:80" in page and "garbage collection" in page


def test_without_a_browser_pictures_of_the_page_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    GENERATE["photographs"](tmp_path)
    assert "are as they were" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


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
