"""The window's own trace with our tracks: valid for viewers, findings at what they cost, nothing of who ran it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from diagnosis_samples import EXPLICIT_GC, WORKERS, no_step, two_findings, with_findings

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Finding, Location, Part
from perfdoctor.evidence.model import Neighbour, OpProfile, Site
from perfdoctor.recording.kept_trace import KeptTrace, TracedLayer, TracedPart, TracedStep
from perfdoctor.recording.lines import CallSite
from perfdoctor.report.chrome_trace import OWN_THREADS, annotated

PID = 77
BASE_NS = 1_790_000_000_000_000_000
CLOCK_NS = BASE_NS + 5_000_000
"""So that the recording's zero lies 5,000 us into the trace."""
AT = Site("model.py", 9, "forward")
KEPT = KeptTrace(
    "trace-77-1.json",
    CLOCK_NS,
    thread=78,
    steps=(TracedStep(14, 0, 400_000), TracedStep(15, 450_000, 900_000)),
    parts=(
        TracedPart("input_wait", 0, 100_000),
        TracedPart("forward", 100_000, 400_000),
        TracedPart("perfdoctor", 400_000, 450_000),
        TracedPart("gc", 450_000, 500_000),
        TracedPart("other", 500_000, 900_000),
    ),
    layers=(
        TracedLayer("", "Net", Site("train.py", 30, "main"), Site("train.py", 20, "main")),
        TracedLayer("head", "Linear", AT, Site("train.py", 21, "main")),
    ),
)


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 78) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": ts, "dur": dur, "args": {"Ev Idx": 1}}


RAW = {
    "schemaVersion": 1,
    "host_name": "node17",
    "traceName": "/home/ann/runs/trace.json",
    "baseTimeNanoseconds": BASE_NS,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "ts": 0, "args": {"name": "python /home/ann/t.py"}},
        event("perfdoctor layer 0", 5100, 200),
        event("perfdoctor layer 1", 5200, 50),
        event("perfdoctor layer 9", 5300, 1),
        event("aten::_local_scalar_dense", 5610, 3),
        event("load /home/ann/secret/x.csv on node17", 5000, 10, "user_annotation"),
    ],
}


def drawn(diagnosis: Diagnosis, raw: object = RAW, kept: KeptTrace = KEPT) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(annotated(json.dumps(raw).encode(), kept, diagnosis))["traceEvents"]
    return events


def tracks(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What lies on each of our own, by name."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["tid"] >= OWN_THREADS}
    return {name: [e for e in events if e["tid"] == tid and e["ph"] != "M"] for tid, name in names.items()}


def spans(diagnosis: Diagnosis, finding: Finding) -> list[tuple[float, float]]:
    """Where it lies, from and to."""
    found = tracks(drawn(with_findings(diagnosis, finding)))
    ((_, events),) = [(name, events) for name, events in found.items() if finding.id in name]
    return [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]


def test_every_event_has_what_viewers_need() -> None:
    events = drawn(two_findings())
    for one in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= one.keys()
    assert {one["pid"] for one in events} == {PID}
    ours = [one for one in events if one["tid"] >= OWN_THREADS and one["ph"] == "X"]
    assert ours and all(one["dur"] > 0 for one in ours)


def test_parts_lie_within_steps_or_between_two() -> None:
    found = tracks(drawn(two_findings()))
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in found["perfdoctor: steps"]]
    assert [e["name"] for e in found["perfdoctor: steps"]] == ["step 14", "step 15"]
    assert steps == [(5000, 5400), (5450, 5900)]
    for part in found["perfdoctor: parts of the step"]:
        inside = [start <= part["ts"] and part["ts"] + part["dur"] <= end for start, end in steps]
        assert any(inside) == (part["name"] != "perfdoctor")


def marked(*ran: dict[str, Any]) -> tuple[list[tuple[str, float, float]], list[dict[str, Any]]]:
    """Steps on the loop's thread where these events ran there, and the events."""
    events = drawn(two_findings(), {**RAW, "traceEvents": list(ran)})
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    assert {(e["tid"], e["cat"]) for e in steps} == {(KEPT.thread, "user_annotation")}
    return [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in steps], events


def test_tools_find_the_steps_on_the_loops_own_thread() -> None:
    assert marked()[0] == [("ProfilerStep#14", 5000, 5400), ("ProfilerStep#15", 5450, 5900)]


def test_a_step_ends_with_the_optimizer_in_whose_hooks_it_ends() -> None:
    steps, events = marked(event("Optimizer.step#SGD.step", 5350, 110, "user_annotation"))
    assert [(start, end) for _, start, end in steps] == [(5000, 5400), (5450, 5900)]
    (cut,) = [e for e in events if e["name"] == "Optimizer.step#SGD.step"]
    assert cut["ts"] + cut["dur"] == 5400, "what follows are hooks, ours among them"


def test_a_step_goes_on_to_the_end_of_a_range_of_the_jobs_own() -> None:
    steps, _ = marked(event("iteration", 5050, 410, "user_annotation"))
    assert [(start, end) for _, start, end in steps] == [(5000, 5460), (5460, 5900)]


def test_what_goes_on_for_longer_than_a_step_does_not_lengthen_one() -> None:
    steps, _ = marked(event("epoch", 5350, 600, "user_annotation"))
    assert [(start, end) for _, start, end in steps] == [(5000, 5400), (5450, 5900)]


def test_what_the_end_of_the_window_cuts_off_ends_with_its_step() -> None:
    steps, events = marked(event("Optimizer.step#SGD.step", 5850, 700, "user_annotation"))
    assert steps[-1][2] == 5900
    (cut,) = [e for e in events if e["name"] == "Optimizer.step#SGD.step"]
    assert cut["ts"] + cut["dur"] == 5900


def test_too_many_parts_are_said_to_be_left_out() -> None:
    assert "perfdoctor: parts of the step (3 parts more)" in tracks(
        drawn(two_findings(), kept=replace(KEPT, parts_left_out=3))
    )


def test_a_finding_lies_over_the_part_that_it_is_billed_to() -> None:
    assert spans(two_findings(), WORKERS) == [(5000, 5100)]
    assert spans(two_findings(), EXPLICIT_GC) == [(5450, 5500)]


def billed_to(part: Part, where: Location | None) -> Finding:
    return replace(WORKERS, location=where, savings=replace(WORKERS.savings, part=part))


def test_a_finding_without_a_part_of_its_own_lies_over_the_steps() -> None:
    assert spans(two_findings(), billed_to(Part.COMPUTE, Location("elsewhere.py", 1))) == [(5000, 5400), (5450, 5900)]


def test_a_finding_at_the_line_of_a_layer_lies_over_its_calls() -> None:
    made = billed_to(Part.COMPUTE, Location("train.py", 20))
    assert spans(two_findings(), made) == [(5100, 5300)]
    called = billed_to(Part.COMPUTE, Location("model.py", 9))
    assert spans(two_findings(), called) == [(5200, 5250)]


def test_a_finding_at_the_line_of_the_optimizer_lies_over_the_updates() -> None:
    diagnosis = two_findings()
    ops = OpProfile(2, (), 10.0, 4.0, optimizer_at=Site("train.py", 50, "main"))
    diagnosis = replace(diagnosis, evidence=replace(diagnosis.evidence, ops=ops))
    kept = replace(KEPT, parts=(TracedPart("optimizer", 600_000, 700_000),))
    finding = billed_to(Part.COMPUTE, Location("train.py", 50))
    found = tracks(drawn(with_findings(diagnosis, finding), kept=kept))
    ((lies,),) = [events for name, events in found.items() if WORKERS.id in name]
    assert (lies["ts"], lies["dur"]) == (5600, 100)


@pytest.mark.parametrize(("others", "expected"), [((), [(5610, 5613)]), ((7,), [(5000, 5400), (5450, 5900)])])
def test_a_finding_at_the_only_line_that_reads_scalars_lies_over_the_reads(
    others: tuple[int, ...], expected: list[tuple[float, float]]
) -> None:
    reads = tuple(CallSite("scalar_read", Site("train.py", line, "main"), 1.0, 0.1) for line in (31, *others))
    diagnosis = two_findings()
    diagnosis = replace(diagnosis, evidence=replace(diagnosis.evidence, call_sites=reads))
    assert spans(diagnosis, billed_to(Part.OTHER, Location("train.py", 31))) == expected


def test_what_is_not_in_these_steps_is_a_mark_at_their_start() -> None:
    found = tracks(drawn(with_findings(two_findings(), billed_to(Part.EPOCH, None))))
    ((mark,),) = [events for name, events in found.items() if WORKERS.id in name]
    assert (mark["ph"], mark["ts"]) == ("i", 5000)
    assert "in these steps" in mark["name"]


def test_a_finding_says_what_it_costs_and_what_to_do() -> None:
    (first, *_) = [events for name, events in tracks(drawn(two_findings())).items() if WORKERS.id in name]
    assert first[0]["name"].startswith("The loop waits 14.2 ms per step for the next batch")
    assert "3 worker processes" in first[0]["args"]["fix"]
    assert first[0]["args"]["where"] == "train.py:41 in main"
    assert first[0]["args"]["more"] == "perfdoctor explain PD03"


def test_layers_have_the_names_of_the_model_and_are_no_operators() -> None:
    events = {e["name"]: e for e in drawn(two_findings())}
    assert events["Net"]["args"]["made at"] == "train.py:20 in main"
    assert events["head (Linear)"]["cat"] == events["Net"]["cat"] == "user_annotation"
    assert events["perfdoctor layer 9"]["cat"] == "cpu_op", "of a layer that nobody knows"


def test_it_does_not_tell_who_ran_the_job_or_where() -> None:
    diagnosis = two_findings()
    host = replace(diagnosis.evidence.host, neighbours=(Neighbour(5, "make", "bob", 1.0),))
    finding = replace(WORKERS, message="make (pid 5, user bob) reads /home/ann/data/x.csv with --token abc123secret")
    diagnosis = with_findings(replace(diagnosis, evidence=replace(diagnosis.evidence, host=host)), finding)
    text = annotated(json.dumps(RAW).encode(), KEPT, diagnosis)
    for word in ("node17", "ann", "bob", "abc123secret"):
        assert f"{word}" not in text.replace("annotation", "")
    assert "~/data/x.csv" in text and "aten::_local_scalar_dense" in text


@pytest.mark.parametrize(("ranks", "told"), [(1, None), (8, {"rank": 3, "world_size": 8})])
def test_tools_are_told_the_rank_where_there_are_several(ranks: int, told: object) -> None:
    diagnosis = two_findings()
    job = replace(diagnosis.evidence.job, world_size=ranks)
    diagnosis = replace(diagnosis, evidence=replace(diagnosis.evidence, job=job))
    trace = json.loads(annotated(json.dumps(RAW).encode(), KEPT, diagnosis, rank=3))
    assert trace.get("distributedInfo") == told


def test_a_job_without_a_steady_step_has_its_tracks_too() -> None:
    assert [e["args"] for e in tracks(drawn(no_step()))["perfdoctor: steps"]] == [{}, {}]


def test_times_of_a_torch_that_writes_absolute_ones() -> None:
    raw = {name: value for name, value in RAW.items() if name != "baseTimeNanoseconds"}
    (first, _) = tracks(drawn(two_findings(), raw))["perfdoctor: steps"]
    assert first["ts"] == CLOCK_NS / 1000


@pytest.mark.parametrize("text", ["", "{", "[]", '{"traceEvents": 3}', json.dumps(RAW)[:-40]])
def test_what_is_no_whole_trace_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        annotated(text.encode(), KEPT, two_findings())


def test_bytes_that_are_no_text_do_not_matter() -> None:
    raw = json.dumps(RAW).encode().replace(b"load ", b"load \xff\x01")
    assert json.loads(annotated(raw, KEPT, two_findings()))
