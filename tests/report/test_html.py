from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import diagnosis_samples as samples
import pytest
from gate_samples import RESULTS
from page_reading import Page, text_of, words

from perfdoctor.commands import check
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import CheckResult, Diagnosis
from perfdoctor.diagnosis.findings import Finding, Location, Measurement
from perfdoctor.evidence.model import Job
from perfdoctor.gate.model import GateResult
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.report.anatomy import JOB_LOOKS, LOOKS, Slice
from perfdoctor.report.content import Content, SliceText, prepare
from perfdoctor.report.gate_words import prepare_gate
from perfdoctor.report.html import page as pages
from perfdoctor.report.html import palette
from perfdoctor.report.html.bars import segments
from perfdoctor.report.html.charts.model import Chart
from perfdoctor.report.html.data import embedded
from perfdoctor.report.html.gate import render_gate_html
from perfdoctor.report.html.marked import prose
from perfdoctor.report.html.page import render_html
from perfdoctor.report.verdict import verdict
from perfdoctor.trials.judge import judge

DEMO = Path(__file__).parents[1] / "recordings" / "demo"
LARGEST = 600_000
"""Bytes of a page beside its data."""


@lru_cache
def demo() -> Diagnosis:
    return judge(RunDirectory(DEMO), Config())


def doubtful() -> Diagnosis:
    """With a note about the run that the verdict begins with, and one that it does not."""
    (note,) = samples.troubled().integrity
    doubt = replace(note, code="PD94", name="drifting-step", message="the steps drift by {others}")
    return replace(samples.tried(), integrity=(doubt, note))


SAMPLES = (*samples.ALL, samples.tried, doubtful, demo)


def written(diagnosis: Diagnosis) -> Page:
    return Page(render_html(diagnosis, next_command="perfdoctor explain PD03"))


@pytest.fixture(params=SAMPLES, ids=lambda make: make.__name__)
def sample(request: pytest.FixtureRequest) -> Diagnosis:
    diagnosis: Diagnosis = request.param()
    return diagnosis


# ---------------------------------------------------------------------------------------------------------
# Its form


def test_names_are_unique_and_lead_somewhere(sample: Diagnosis) -> None:
    page = written(sample)
    ids = [element.get("id") for element in page.all() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in page.all():
        for target in element.get("aria-labelledby", "").split():
            assert target in ids
        if element.get("href", "").startswith("#"):
            assert element.get("href", "")[1:] in ids


def test_headings_are_in_order_and_landmarks_are_named(sample: Diagnosis) -> None:
    page = written(sample)
    levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3", "h4", "h5")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    assert [len(page.all(tag)) for tag in ("main", "header", "footer", "nav")] == [1, 1, 1, 1]
    assert all(element.get("aria-labelledby") for element in page.all("section", "article"))
    assert all(text_of(heading) for heading in page.all("h1", "h2", "h3", "h4"))
    assert page.root.get("lang") == "en"


def test_every_cell_of_a_table_has_a_head(sample: Diagnosis) -> None:
    for table in written(sample).all("table"):
        rows = [
            row for row in table.iter("tr") if not any(row in other.iter("tr") for other in table.findall(".//table"))
        ]
        widths = {sum(int(cell.get("colspan", "1")) for cell in row) for row in rows}
        assert len(widths) == 1
        assert all(row.findall("th[@scope]") for row in rows)


def test_nothing_is_fetched_and_the_browser_is_told_so(sample: Diagnosis) -> None:
    page = written(sample)
    assert not page.all("img", "iframe", "object", "embed", "audio", "video", "base", "form", "source")
    assert not [element for element in page.all() if element.get("src") or element.get("srcset")]
    assert [link.get("href") for link in page.all("link")] == ["data:,"]
    assert all(link.get("href", "").startswith(("#", "https://")) for link in page.all("a"))
    assert "url(" not in page.html and "@import" not in page.html
    (policy,) = [meta.get("content", "") for meta in page.all("meta") if meta.get("http-equiv")]
    assert policy.startswith("default-src 'none';") and "http" not in policy


def test_a_page_is_small() -> None:
    many = tuple(replace(samples.WORKERS, location=Location("train.py", line, "main")) for line in range(1, 60))
    text = render_html(samples.with_findings(samples.two_findings(), *many), next_command="")
    assert len(text.encode()) < LARGEST
    assert len(Page(text).all("article")) == 59


def test_colours_are_named_and_there_in_both_themes() -> None:
    assert list(palette.LIGHT) == list(palette.DARK)
    style = "".join((pages.HERE / name).read_text() for name in pages.STYLES)
    known = {*palette.LIGHT, *re.findall(r"--([\w-]+):", style)}
    used = set(re.findall(r"var\(--([\w-]+)\)", style))
    assert used <= known
    assert set(palette.LIGHT) - used == {name for name in palette.LIGHT if name.startswith("hue-")}
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", style), "a colour beside the palette"
    styles = {look.style for look in (*LOOKS.values(), *JOB_LOOKS.values())}
    assert {f"hue-{style}" for style in styles} == {name for name in palette.LIGHT if name.startswith("hue-")}


def _contrast(one: str, other: str) -> float:
    """By WCAG 2.2, of two colours #rrggbb."""

    def luminance(colour: str) -> float:
        channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_text_can_be_read_on_its_ground(theme: dict[str, str]) -> None:
    pairs = [("on-hue", name) for name in theme if name.startswith("hue-")]
    pairs += [(text, ground) for text in ("text", "muted", "accent", "good") for ground in ("ground", "raised")]
    pairs += [(text, "code-ground") for text in ("text", "muted")]
    pairs += [(text, "hot-ground") for text in ("text", "muted", "warning")]
    pairs += [(kind, f"{kind}-ground") for kind in ("error", "warning", "opportunity")]
    pairs += [("text", "warning-ground"), ("error", "ground")]
    weak = {pair: round(_contrast(theme[pair[0]], theme[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


# ---------------------------------------------------------------------------------------------------------
# What it says


def _sentences(content: Content) -> Iterator[str]:
    """All texts of a prepared report, but for what other renderers cut or draw themselves."""

    def of(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            for one in value:
                yield from of(one)
        elif is_dataclass(value):
            for field in fields(value):
                if field.name not in ("finding", "result", "piece", "language", "code", "line", "measured", "gain"):
                    yield from of(getattr(value, field.name))

    told = replace(content, alarms=(), notes=(), suppressed=())
    yield from of(told)
    yield from of(tuple(note.message for _, note in content.notes))
    for item, reason in content.suppressed:
        yield from (item.message, item.where, reason)


def test_it_says_all_that_the_other_reports_say(sample: Diagnosis) -> None:
    content = prepare(sample)
    # Languages of code blocks are classes of theirs.
    kept = {language for _, language, _ in content.trials.keep} if content.trials else set()
    text = written(sample).text
    for sentence in _sentences(content):
        assert words(sentence) in text or sentence in kept, sentence


def test_it_begins_with_the_verdict_of_the_terminal(sample: Diagnosis) -> None:
    page = written(sample)
    (section,) = page.all("section", of="verdict")
    told = " ".join(text_of(paragraph) for paragraph in section.iter("p") if paragraph.get("class") != "summary")
    assert told.replace("! in doubt ", "") == words(verdict(sample))
    assert next(iter(page.root.iter("main"))).find("section") is section


def test_every_finding_has_its_card(sample: Diagnosis) -> None:
    page = written(sample)
    cards = page.all("article", of="card")
    assert [card.get("id") for card in cards] == [f"finding-{n}" for n, _ in enumerate(sample.ranked, 1)]
    texts = [text for section in prepare(sample).sections for text in section.findings]
    for card, text in zip(cards, texts, strict=True):
        said = text_of(card)
        assert f"{text.mark} {text.kind} {text.number}. {text.finding.id}" in said
        for sentence in (
            text.message,
            text.where,
            text.cost,
            text.saves,
            text.fix,
            text.risk,
            text.reasoning,
            text.method,
        ):
            assert words(sentence) in said
        for sentence in text.tried:
            assert words(sentence) in said
        for label, value in text.evidence:
            assert f"{label} {value}" in said
        codes = [element.text for element in card.findall(".//pre/code")]
        assert codes == ([text.code] if text.code else [])
        (link,) = [link for link in page.all("a") if link.get("href") == f"#{card.get('id')}"]
        assert text.finding.id in (link.text or "")


def test_what_can_be_copied_is_exactly_what_is_to_be_typed() -> None:
    page = written(samples.tried())
    blocks = page.all("div", of="code")
    copied = [block.find("pre/code").text for block in blocks]  # type: ignore[union-attr]
    keep = [lines for _, _, lines in prepare(samples.tried()).trials.keep]  # type: ignore[union-attr]
    assert copied[-1] == "perfdoctor explain PD03"
    assert all(lines in copied for lines in keep)
    assert all(len(block.findall("button")) == 1 for block in blocks)
    names = [block.find("button").get("aria-label") for block in blocks]  # type: ignore[union-attr]
    assert len(set(names)) == len(names)


def test_the_hot_line_is_marked_among_those_around_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("\n" * 38 + "def main():\n    a = 1\n    for x in '<b>':\n        a\n\n\n")
    job: Job = replace(samples.EVIDENCE.job, cwd=str(tmp_path), started=datetime.now(timezone.utc).isoformat())
    page = written(replace(samples.two_findings(), evidence=replace(samples.EVIDENCE, job=job)))
    card = page.by_id("finding-1")
    (source,) = [element for element in card.iter("div") if element.get("class") == "source"]
    lines = [text_of(line) for line in source]
    assert lines == ["39 def main():", "40 a = 1", "41 ▶ for x in '<b>':", "42 a"]
    assert [mark.text for mark in source.iter("mark")] == ["    for x in '<b>':"]
    assert not [element for element in page.by_id("finding-2").iter("div") if element.get("class") == "source"]


def test_one_axis_serves_all_cards() -> None:
    page = written(samples.tried())
    ticks = {tuple(text_of(tick) for tick in scale) for scale in page.all("div", of="scale")}
    assert len(ticks) == 1 and "1x" in next(iter(ticks))
    tracks = [track for track in page.by_id("finding-1").iter("div") if track.get("class") == "track"]
    assert [track.get("title", "").partition(":")[0] for track in tracks] == ["predicted", "measured", "measured"]


# ---------------------------------------------------------------------------------------------------------
# Names with HTML in them

HOSTILE = "</script><b>.py"


def hostile() -> Diagnosis:
    finding: Finding = replace(
        samples.WORKERS,
        message=f"{HOSTILE} waits `{HOSTILE}` <!-- {{wait_ms}}",
        evidence=(*samples.WORKERS.evidence, Measurement("name", HOSTILE, "text", HOSTILE)),
        fix=replace(samples.WORKERS.fix, text=HOSTILE, code=HOSTILE, risk=HOSTILE),
        location=Location(HOSTILE, 41, HOSTILE),
        reasoning=HOSTILE,
        rank_note=HOSTILE,
    )
    diagnosis = samples.with_findings(samples.two_findings(), finding)
    job = replace(diagnosis.evidence.job, command=("python", HOSTILE), cwd=f"/{HOSTILE}", environment=(("A", HOSTILE),))
    checks = tuple(
        CheckResult(check.code, HOSTILE, HOSTILE, check.outcome) if check.code == "PD08" else check
        for check in diagnosis.checks
    )
    return replace(diagnosis, evidence=replace(diagnosis.evidence, job=job), checks=checks)


def test_names_with_html_in_them_stay_text() -> None:
    page = written(hostile())
    assert not page.all("b")
    assert page.html.count("<script") == page.html.count("</script>") == len(page.all("script")) == 2
    assert page.text.count(HOSTILE) > 12
    (title,) = page.all("title")
    assert title.text == f"perfdoctor: python '{HOSTILE}'"
    assert "<!--" not in page.html
    assert page.all("footer"), "the page is read to its end"


def test_data_cannot_end_its_element() -> None:
    value = {"name": f"{HOSTILE} <!-- <script> & \u2028 \u2029 \ud800 é", "list": [1, 2.5, None, True]}
    text = str(embedded(value))
    assert not set("<>&\u2028") & set(text)
    assert text.isascii()
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def test_a_chart_is_words_a_table_and_data(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = Chart(
        "Steps over time", f"{HOSTILE} takes `5 ms`", ("step", "ms"), (("1", "5.0"), (HOSTILE, "6.0")), [HOSTILE]
    )
    monkeypatch.setattr(pages.charts, "build", lambda diagnosis, recorded: {"steps": chart})
    page = written(samples.healthy())
    (figure,) = page.all("figure", of="chart")
    assert figure.get("data-chart") == "steps"
    assert f"{HOSTILE} takes 5 ms" in text_of(figure)
    assert [text_of(row) for row in figure.iter("tr")] == ["step ms", "1 5.0", f"{HOSTILE} 6.0"]
    (data,) = [script for script in page.all("script") if script.get("id") == "data"]
    assert json.loads(data.text or "") == {"charts": {"steps": [HOSTILE]}}
    assert "#chart-steps" in [link.get("href") for link in page.all("a")]


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a `b` c", "a <code>b</code> c"),
        ("`` a`b ``", "<code>a`b</code>"),
        ("one ` tick <b>", "one ` tick &lt;b&gt;"),
        ("`<b>` & 'c'", "<code>&lt;b&gt;</code> &amp; &#39;c&#39;"),
        ("", ""),
    ],
)
def test_code_in_a_sentence_is_an_element(text: str, html: str) -> None:
    assert prose(text) == html


# ---------------------------------------------------------------------------------------------------------
# Drawn


def test_a_bar_is_as_wide_as_its_parts_and_tells_two_of_one_hue_apart() -> None:
    names = ("other", "communication", "logging", "forward")
    rows = tuple(SliceText(Slice(name, LOOKS[name], 2.5, 0.25), "2.5 ms", "25 %") for name in names)
    drawn = segments(rows)
    assert sum(one.width for one in drawn) == pytest.approx(100)
    assert [one.hue for one in drawn] == ["white", "bright_blue", "bright_blue", "green"]
    assert [one.texture for one in drawn] == [0, 0, 1, 0]


def test_no_two_parts_of_one_time_look_alike() -> None:
    style = (pages.HERE / "assets/page.css").read_text()
    for looks in (LOOKS, JOB_LOOKS):
        rows = tuple(SliceText(Slice(name, look, 1.0, 0.1), "", "") for name, look in looks.items())
        drawn = [(one.hue, one.texture) for one in segments(rows)]
        assert len(set(drawn)) == len(drawn)
        assert all(f".texture-{texture} " in style for _, texture in drawn if texture)


# ---------------------------------------------------------------------------------------------------------
# Asked for


def test_it_is_an_output_of_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert check.report([DEMO], check.Settings(fail_on="never"), [f"html:{file}"], verbose=False) == 0
    page = Page(file.read_text(encoding="utf-8"))
    assert words(verdict(demo())) in page.text.replace("! in doubt ", "")
    assert "perfdoctor check --trial" in text_of(page.all("footer")[0])


@pytest.mark.parametrize("result", RESULTS)
def test_a_gate_is_a_page_too(result: GateResult) -> None:
    content = prepare_gate(result)
    page = Page(render_gate_html(result))
    (title,) = page.all("h1")
    assert text_of(title) == words(content.headline)
    for line in (line for group in content.groups for line in group.lines):
        assert f"{line.mark} {words(line.label)} {line.before} {line.after}" in page.text
    for text in (*content.why, *content.notes, *content.recordings, *(group.rest for group in content.groups)):
        assert words(text) in page.text
