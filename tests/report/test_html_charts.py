"""What charts are drawn from, and what they say in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recordings as r
from chart_samples import EVIL, LATE, Called, flame, long_run, many_ranks, together
from diagnosis_samples import healthy, two_findings
from gate_samples import PASS, REGRESSION
from gates_with_pairs import SLOWER, slower_gate
from page_reading import Page, text_of
from samples import with_
from traces_by_hand import TraceByHand

from perfdoctor.evidence import steady
from perfdoctor.evidence.model import Communication, Missing
from perfdoctor.evidence.windows import trace as kept_trace
from perfdoctor.recording.kept_trace import KeptTrace
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import read
from perfdoctor.report.html import charts
from perfdoctor.report.html.charts.distributions import distributions_chart
from perfdoctor.report.html.charts.flame import flame_chart
from perfdoctor.report.html.charts.lanes import MOST_SPANS, lanes_of_run, lanes_of_trace
from perfdoctor.report.html.charts.model import Chart
from perfdoctor.report.html.charts.pairs import pairs_chart
from perfdoctor.report.html.charts.ranks import MOST_ROWS, ranks_chart
from perfdoctor.report.html.charts.scripts import chart_scripts
from perfdoctor.report.html.charts.steps import MOST_MARKS, MOST_POINTS, steps_chart
from perfdoctor.report.html.page import render_html


def process(directory: Path, count: int) -> ProcessRecording:
    (found,) = read(long_run(directory, count)).ranks
    return found


def steps_of(recording: ProcessRecording) -> Chart:
    chart = steps_chart(recording, steady.select(steady.untouched(recording)))
    assert chart is not None
    return chart


def data_of(chart: Chart) -> Any:
    """As the page's script gets it."""
    return json.loads(json.dumps(chart.data))


# ---------------------------------------------------------------------------------------------------------
# Steps over time


def test_every_step_is_a_point(tmp_path: Path) -> None:
    data = data_of(steps_of(process(tmp_path, 1200)))
    assert data["first"] == list(range(1200))
    assert data["last"] == 1199
    assert [line["label"] for line in data["lines"]] == ["step", "waiting for data", "forward pass", "backward pass"]
    assert all(len(line["ms"]) == 1200 for line in data["lines"])
    assert data["lines"][0]["ms"][0] == 2400
    assert data["lines"][1]["ms"][5] == 14


def test_what_happened_is_marked_with_its_steps(tmp_path: Path) -> None:
    marks = {mark["kind"]: mark["spans"] for mark in data_of(steps_of(process(tmp_path, 1200)))["marks"]}
    assert marks["window"] == [[20, 27]]
    assert marks["epoch"] == [[step, step] for step in range(0, 1200, 100)]
    assert marks["evaluation"] == [[step, step] for step in range(100, 1200, 100)]
    assert marks["gc"] == [[step, step] for step in range(50, 1200, 50)]
    assert marks["checkpoint"] == [[999, 999]]
    assert marks["trial"] == [[1140, 1159]]
    assert marks["warm_up"][0][0] == 0
    assert "profiler" not in marks


def test_the_table_has_a_tenth_of_the_run_in_each_row(tmp_path: Path) -> None:
    rows = steps_of(process(tmp_path, 1200)).rows
    assert [row[0] for row in rows][:2] == ["0 to 119", "120 to 239"]
    assert len(rows) == 10
    assert rows[0][2] == "2.40 s"
    assert "an iterator of a loader starts (2)" in rows[0][3]


def test_of_more_steps_than_are_drawn_the_longest_stay(tmp_path: Path) -> None:
    chart = steps_of(process(tmp_path, 2 * MOST_POINTS + 1))
    data = data_of(chart)
    assert len(data["first"]) <= MOST_POINTS
    assert data["first"][:3] == [0, 3, 6]
    labels = [line["label"] for line in data["lines"]]
    assert labels[:2] == ["step", "longest of 3 steps"]
    median, longest = (data["lines"][i]["ms"][400 // 3] for i in (0, 1))
    assert median < 30 < 110 < longest
    assert "Each point is the median of 3 steps in a row." in chart.caption


def test_marks_that_are_too_many_are_counted(tmp_path: Path) -> None:
    collections = [r.full_collection(step, 10) for step in range(0, 2 * MOST_MARKS + 40, 2)]
    recording = r.recorded(tmp_path, r.torch(), r.steps(10_000, 2 * MOST_MARKS + 40), *collections)
    (mark,) = (mark for mark in data_of(steps_of(recording))["marks"] if mark["kind"] == "gc")
    assert len(mark["spans"]) == MOST_MARKS
    assert mark["left_out"] == 20


def test_neighbouring_steps_are_one_mark(tmp_path: Path) -> None:
    collections = [r.full_collection(step, 10) for step in (4, 5, 6, 9)]
    recording = r.recorded(tmp_path, r.torch(), r.steps(10_000, 40), *collections)
    (mark,) = (mark for mark in data_of(steps_of(recording))["marks"] if mark["kind"] == "gc")
    assert mark["spans"] == [[4, 6], [9, 9]]


@pytest.mark.parametrize(("longest_us", "log"), [(150_000, False), (250_000, True)])
def test_the_axis_is_logarithmic_where_one_step_would_flatten_the_others(
    tmp_path: Path, longest_us: int, log: bool
) -> None:
    recording = r.recorded(tmp_path, r.torch(), r.steps([10_000] * 30 + [longest_us] + [10_000] * 9))
    assert data_of(steps_of(recording))["log"] is log


def test_one_step_is_no_course(tmp_path: Path) -> None:
    recording = r.recorded(tmp_path, r.torch(), r.steps(10_000, 1))
    assert steps_chart(recording, steady.select(recording)) is None


# ---------------------------------------------------------------------------------------------------------
# Distributions


def distributions_of(directory: Path, wall_us: list[int], **parts: int) -> Chart | None:
    recording = r.recorded(directory, r.torch(), r.steps(wall_us, **parts))
    return distributions_chart(r.selected(recording))


def test_every_steady_step_is_in_a_bar(tmp_path: Path) -> None:
    chart = distributions_of(tmp_path, [10_000 + 10 * (i % 100) for i in range(400)], forward_us=4_000)
    assert chart is not None
    data = data_of(chart)
    assert sum(data["counts"]) == 399
    assert data["beyond"] == 0
    assert [strip["label"] for strip in data["strips"]] == ["step", "forward pass", "other code in the loop"]
    assert data["strips"][1]["quantiles"] == [4] * 5
    assert chart.rows[1] == ("forward pass", *["4.00 ms"] * 6)


def test_steps_that_are_far_longer_are_counted_beyond_the_end(tmp_path: Path) -> None:
    chart = distributions_of(tmp_path, [10_000 + 10 * (i % 100) for i in range(800)] + [90_000, 10_000])
    assert chart is not None
    data = data_of(chart)
    assert data["to"] < 12
    assert data["beyond"] >= 1
    assert sum(data["counts"]) + data["beyond"] == 801
    assert "beyond the right end, up to 90.0 ms." in chart.caption


def test_steps_of_one_length_have_no_distribution(tmp_path: Path) -> None:
    assert distributions_of(tmp_path, [10_000] * 40) is None


# ---------------------------------------------------------------------------------------------------------
# Ranks


def ranks_of(found: Communication) -> Chart | None:
    return ranks_chart({times.rank: times.parts for times in found.ranks}, found)


def test_the_late_rank_is_named_in_words_and_marked() -> None:
    chart = ranks_of(together(64))
    assert chart is not None
    assert chart.caption.startswith(f"Rank {LATE} is late: its own work takes ")
    data = data_of(chart)
    assert data["late"] == LATE
    assert len(data["ms"]) == len(data["parts"])
    assert all(len(row) == 64 for row in data["ms"])
    (row,) = (row for row in chart.rows if row[0].startswith(f"{LATE}"))
    assert row[0] == f"{LATE}, late"


def test_a_rank_that_is_late_by_chance_is_not_called_late() -> None:
    chart = ranks_of(replace(together(8), late_low_ms=0.1))
    assert chart is not None
    assert chart.caption.startswith("No rank is late by more than chance")
    assert data_of(chart)["late"] is None
    assert not any("late" in row[0] for row in chart.rows)


def test_of_thousands_of_ranks_all_are_drawn_and_the_slowest_listed() -> None:
    chart = ranks_of(together())
    assert chart is not None
    assert len(data_of(chart)["ranks"]) == 4096
    assert len(chart.rows) == MOST_ROWS
    assert f"{LATE}, late" in [row[0] for row in chart.rows]


def test_one_rank_is_beside_nobody() -> None:
    assert ranks_of(together(1)) is None


def test_ranks_that_were_not_seen_to_wait_are_drawn_without_a_late_one(tmp_path: Path) -> None:
    for rank, forward_us in ((0, 4_000), (1, 6_000)):
        settings = r.settings(rank=rank, world_size=2)
        r.write(tmp_path, r.torch(), settings, r.steps(10_000, 40, forward_us=forward_us), pid=r.PID + rank)
    alone = replace(many_ranks(2), evidence=with_(many_ranks(2).evidence, communication=Missing("nothing is sent")))
    chart = charts.build(alone, [r.write_run(tmp_path).path])["ranks"]
    assert chart.caption == "Whether a rank is late cannot be told: nothing is sent."
    data = data_of(chart)
    assert data["late"] is None
    assert data["ms"][data["parts"].index("forward pass")] == [4, 6]
    assert [row[0] for row in chart.rows] == ["0", "1"]


# ---------------------------------------------------------------------------------------------------------
# Lanes


@pytest.fixture
def kept(tmp_path: Path) -> tuple[bytes, KeptTrace]:
    directory = long_run(tmp_path, 120)
    (found,) = read(directory).ranks
    record = kept_trace(found)
    assert isinstance(record, KeptTrace)
    return (directory.path / record.file).read_bytes(), record


def test_a_step_lies_in_lanes_of_host_and_device(kept: tuple[bytes, KeptTrace]) -> None:
    chart = lanes_of_run(*kept)
    assert chart is not None
    assert chart.title == "Step 12 in lanes"
    data = data_of(chart)
    assert data["us"] == 24_000
    lanes = {lane["name"]: lane for lane in data["lanes"]}
    assert list(lanes) == ["parts of the step", "layers", "operators", "device 0, stream 7"]
    assert [lanes[name]["rows"] for name in lanes] == [1, 1, 2, 1]
    start, lasts, name, row = lanes["operators"]["spans"][1]
    assert (start, lasts, data["names"][name], row) == (14_004, 28, "aten::addmm", 1)
    assert data["names"][lanes["layers"]["spans"][0][2]] == f"encoder.{EVIL} (Linear)"
    assert data["hues"][data["names"].index("forward pass")] == "green"


def test_lanes_say_how_long_a_device_has_work_and_what_takes_most(kept: tuple[bytes, KeptTrace]) -> None:
    chart = lanes_of_run(*kept)
    assert chart is not None
    assert "A device has work for 6.00 ms of them, 25 %." in chart.caption
    assert chart.rows[0] == ("device 0, stream 7", "void gemm<0>", "67", "2.01 ms")
    assert ("operators", "aten::linear", "200", "7.20 ms") in chart.rows


def test_a_trace_without_steps_or_events_has_no_lanes(kept: tuple[bytes, KeptTrace]) -> None:
    text, record = kept
    assert lanes_of_run(text, replace(record, steps=())) is None
    with pytest.raises(ValueError, match="no events"):
        lanes_of_run(b"[]", record)


def test_of_very_many_spans_the_longest_are_drawn(kept: tuple[bytes, KeptTrace]) -> None:
    _, record = kept
    many = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "tid": 100, "ts": 2 * i, "dur": 1} for i in range(MOST_SPANS + 500)
    ]
    chart = lanes_of_run(json.dumps({"traceEvents": many}).encode(), record)
    assert chart is not None
    assert sum(len(lane["spans"]) for lane in data_of(chart)["lanes"]) == MOST_SPANS
    assert f"The {MOST_SPANS:,} longest of {MOST_SPANS + 504:,} spans are drawn." in chart.caption


def test_of_a_trace_the_step_of_median_length_is_drawn() -> None:
    made = TraceByHand()
    for step, (start, end) in enumerate([(0, 500), (500, 1500), (1500, 4000)]):
        made.mark(f"ProfilerStep#{step}", start, end)
        made.op(f"aten::op{step}", start + 10, end - 10)
        made.work(f"kernel{step}", start + 100, start + 200, start + 20)
    chart = lanes_of_trace(made.trace())
    assert chart is not None
    assert chart.title == "ProfilerStep#1 in lanes"
    data = data_of(chart)
    assert data["us"] == 1000
    assert sorted(data["names"]) == ["aten::op1", "kernel1"]


def test_a_trace_whose_steps_are_not_marked_has_no_lanes() -> None:
    made = TraceByHand()
    made.op("aten::mm", 0, 10)
    assert lanes_of_trace(made.trace()) is None


# ---------------------------------------------------------------------------------------------------------
# Flame graph


def test_a_function_that_calls_itself_is_counted_once() -> None:
    inner = Called("walk", 4.0, (Called("leaf", 1.0),))
    chart = flame_chart(Called("all", 10.0, (Called("walk", 7.0, (inner,)),)), "Samples.")
    assert chart is not None
    rows = {row[0]: row[1:] for row in chart.rows}
    assert rows["walk"] == ("6.00 ms", "7.00 ms", "60 %")
    assert rows["leaf"] == ("1.00 ms", "1.00 ms", "10 %")
    assert data_of(chart)["root"]["children"][0]["children"][0]["value"] == 4


def test_no_time_has_no_flame_graph() -> None:
    assert flame_chart(Called("all", 0.0), "Samples.") is None


def test_a_flame_graph_brings_its_library_in_600_kb(tmp_path: Path) -> None:
    chart = flame_chart(flame(), "Samples.")
    assert chart is not None
    scripts = chart_scripts({"steps": chart, "flame": chart})
    assert any("d3-flame-graph" in script for script in scripts)
    assert sum(map(len, scripts)) < 300_000
    assert not any("</script" in script.lower() for script in scripts)
    assert not any("flamegraph" in script for script in chart_scripts(["ranks"])[:-1])
    assert chart_scripts([]) == []


# ---------------------------------------------------------------------------------------------------------
# Pairs of a gate


def test_log_ratios_of_pairs_are_per_cent() -> None:
    chart = pairs_chart(replace(REGRESSION, pairs={"step_time.core": [math.log(1.06), math.log(0.5)]}), 0.05)
    assert chart is not None
    data = data_of(chart)
    assert data["tolerance"] == 5
    (metric,) = data["metrics"]
    assert metric["pairs"] == [6, -50]
    assert (metric["low"], metric["high"]) == (5, 7)
    assert chart.rows == (("1", "+6.0 %"), ("2", "-50.0 %"))
    assert "uncontended step: +6.0 % [+5.0, +7.0] over 2 pairs. The dashed line is the tolerated slowdown, 5.0 %." in (
        chart.caption
    )


def test_a_gate_without_pairs_has_no_chart_of_them() -> None:
    assert pairs_chart(PASS, 0.05) is None


def test_both_diagnoses_of_a_gate_are_side_by_side() -> None:
    page = Page(slower_gate())
    (section,) = (one for one in page.all("section") if one.get("id") == "arms")
    before, after = (text_of(one) for one in section.find("div") or [])
    assert before.startswith("Before")
    assert "Nothing is found." in before
    assert after.startswith("Now")
    assert after.count("New.") == len(two_findings().ranked)
    assert len(SLOWER.pairs["step_time.core"]) == 16
    assert healthy().ranked == ()


# ---------------------------------------------------------------------------------------------------------
# All of them


def test_a_run_has_its_charts_in_the_page(tmp_path: Path) -> None:
    run = long_run(tmp_path, 120)
    found = charts.build(many_ranks(4), [run.path])
    assert list(found) == ["steps", "distributions", "ranks", "lanes"]
    page = Page(render_html(many_ranks(4), next_command="", recorded=[run.path]))
    assert [figure.get("data-chart") for figure in page.all("figure")] == list(found)
    assert all(text_of(figure.find("figcaption")) for figure in page.all("figure"))


def test_a_trace_that_is_gone_leaves_the_other_charts(tmp_path: Path) -> None:
    run = long_run(tmp_path, 120)
    (run.path / "trace-100-1.json").unlink()
    assert list(charts.build(many_ranks(4), [run.path])) == ["steps", "distributions", "ranks"]
