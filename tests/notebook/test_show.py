"""Reports in a notebook, by a real shell of IPython."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import perfdoctor
from perfdoctor.errors import PerfdoctorError
from perfdoctor.notebook.shown import recordings

DEMO = Path(__file__).parents[1] / "recordings" / "demo"


class Frame(HTMLParser):
    """What is in the frame, and which other elements there are."""

    page = ""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.page = dict(attributes)["srcdoc"] or ""


def test_a_recording_is_the_whole_page_in_a_frame() -> None:
    shown = perfdoctor.show(DEMO)
    frame = Frame()
    frame.feed(shown._repr_html_())
    assert frame.tags == ["iframe"]
    assert frame.page.startswith("<!DOCTYPE html>")
    assert "PD04.explicit-collect" in frame.page
    assert shown._repr_markdown_().startswith("# perfdoctor: ")
    assert "What to fix, largest saving first" in repr(shown)


def test_without_a_name_it_is_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfdoctorError, match="no recording"):
        perfdoctor.show()
    runs = tmp_path / ".perfdoctor" / "runs"
    for name in ("20261123-120000-train-1", "20261123-120000-train", "20261122-235959-train"):
        shutil.copytree(DEMO, runs / name)
    (runs / "20261124-000000-not-one").mkdir()
    found = recordings(runs)
    assert found[0].name.startswith("20261122")
    assert perfdoctor.show().recorded == (found[-1],)
