"""From evidence to metrics: each a value or the reason for which there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import samples
from counted import COUNTED, NONE

from perfdoctor.evidence.counters import counters
from perfdoctor.evidence.model import Missing
from perfdoctor.gate.metrics import NAMES, metrics
from perfdoctor.gate.model import Assume


def test_counters_and_times_come_with_their_class() -> None:
    found = metrics(samples.with_(samples.healthy(), counters=COUNTED))
    assert found["aten_ops"].value == 690
    assert found["op:aten::item"].assume is Assume.EXACT
    assert found["step_time_ms"].assume is Assume.TIMED
    assert found["peak_rss_bytes"].assume is Assume.TIGHT
    assert isinstance(found["data_wait_share"].value, float)
    assert found["kernels"].value == NONE


def test_copies_to_a_device_have_a_share() -> None:
    copying = samples.on_gpu(ops__device_copies_ms=3.0)
    assert not isinstance(copying.step, Missing)
    assert metrics(copying)["h2d_share"].value == 3.0 / copying.step.step_ms
    assert metrics(samples.with_(samples.healthy(), ops__device_copies_ms=3.0))["h2d_share"].value == NONE


def test_what_was_not_recorded_is_missing_with_its_reason() -> None:
    found = metrics(samples.empty())
    assert all(isinstance(metric.value, Missing) and metric.value.reason for metric in found.values())
    assert {"aten_ops", "syncs", "peak_rss_bytes", "step_time_ms"} <= set(found)


def test_all_metrics_have_a_name_that_settings_may_use() -> None:
    assert tuple(metrics(samples.empty())) == NAMES


def test_a_run_without_the_window_says_how_to_count() -> None:
    value = metrics(samples.healthy())["aten_ops"].value
    assert isinstance(value, Missing)
    assert "baseline write" in value.remedy


def test_collections_are_counted_per_hundred_steps() -> None:
    evidence = samples.healthy()
    assert not isinstance(evidence.gc, Missing)
    found = metrics(replace(evidence, gc=replace(evidence.gc, per_step=(0.02, 0.0, 0.0))))
    assert found["gc_collections_gen0"].value == 2


def test_the_window_is_read_back_per_step(tmp_path: Path) -> None:
    import json

    from perfdoctor.recording.reader import ProcessFile

    window = {
        "k": "window", "name": "counters", "first": 10, "steps": 4, "aten": 40, "syncs": 8, "calls": {"aten::mm": 12},
        "device": {"kernels": 4, "Memcpy HtoD": 2}, "losses": [2.5, None], "a_field_of_tomorrow": 1,
    }  # fmt: skip
    path = tmp_path / "process-1-1.jsonl"
    header = {"k": "process", "version": 1, "pid": 1, "ppid": 0, "t": 0}
    path.write_text(json.dumps(header) + "\n" + json.dumps(window) + "\n")
    file = ProcessFile(path)
    file.refresh()
    process = file.recording()
    assert process is not None
    found = counters(process)
    assert not isinstance(found, Missing)
    assert (found.first_step, found.aten_ops, found.syncs, found.calls) == (10, 10, 2, (("aten::mm", 3.0),))
    assert (found.kernels, found.host_to_device, found.device_to_host) == (1, 0.5, 0)
    assert found.losses[0] == 2.5
    assert math.isnan(found.losses[1])
    assert isinstance(found.graphs, Missing)


def test_a_recording_without_it_or_with_an_obstacle_says_so(tmp_path: Path) -> None:
    import json

    from perfdoctor.recording.reader import ProcessFile

    header = json.dumps({"k": "process", "version": 1, "pid": 1, "ppid": 0, "t": 0}) + "\n"
    path = tmp_path / "process-1-1.jsonl"
    path.write_text(header)
    file = ProcessFile(path)
    file.refresh()
    assert isinstance(counters(file.recording()), Missing)  # type: ignore[arg-type]
    path.write_text(header + json.dumps({"k": "window", "name": "counters", "missing": "a profiler"}) + "\n")
    file = ProcessFile(path)
    file.refresh()
    found = counters(file.recording())  # type: ignore[arg-type]
    assert isinstance(found, Missing)
    assert "a profiler" in found.reason
