"""From evidence to metrics: each a value or the reason for which there is none."""

from __future__ import annotations

from dataclasses import replace

import samples
from counted import COUNTED, NONE

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
