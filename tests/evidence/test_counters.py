"""The counters window: what a few steps do, counted."""

from __future__ import annotations

import math
from pathlib import Path

from recordings import no_window, recorded, window

from perfdoctor.evidence.model import Missing
from perfdoctor.evidence.windows import counters

NOT_COMPILED = {"missing": "the job does not use torch.compile"}
COUNTED = {
    "steps": 4,
    "aten_ops": 10.0,
    "syncs": 2.0,
    "conversions": 0.0,
    "copies": 0.0,
    "flops": 0.0,
    "allocations": {"missing": "this torch cannot profile memory quietly"},
    "allocated_bytes": 3.0,
    "kernels": 1.0,
    "host_to_device": 0.5,
    "device_to_host": 0.0,
    "graphs": NOT_COMPILED,
    "graph_breaks": 2,
}


def test_the_window_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = window("counters", **COUNTED, calls=[["aten::mm", 3.0]], losses=[2.5, None], a_field_of_tomorrow=1)
    found = counters(recorded(tmp_path, record))
    assert not isinstance(found, Missing)
    assert (found.first_step, found.aten_ops, found.syncs, found.calls) == (10, 10, 2, (("aten::mm", 3.0),))
    assert (found.kernels, found.host_to_device, found.device_to_host) == (1, 0.5, 0)
    assert found.losses[0] == 2.5
    assert math.isnan(found.losses[1])
    assert isinstance(found.graphs, Missing) and found.graph_breaks == 2
    assert isinstance(found.allocations, Missing) and found.allocated_bytes == 3.0


def test_a_recording_without_it_or_with_an_obstacle_says_so(tmp_path: Path) -> None:
    assert isinstance(counters(recorded(tmp_path)), Missing)
    found = counters(recorded(tmp_path, no_window("counters", "a profiler")))
    assert isinstance(found, Missing)
    assert "a profiler" in found.reason
