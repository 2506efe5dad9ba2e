from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfdoctor.report.live import LiveStatus, plain_line, render_live

BUSY = LiveStatus(
    phase="observing",
    step=120,
    done=0.6,
    left_s=8.2,
    step_ms=23.1,
    samples_per_s=1385.3,
    batches_per_s=43.29,
    input_wait_ms=0.2,
    gc_count=2,
    gc_ms=1.4,
    cpu_cores=1.0,
    memory_bytes=412 << 20,
    gpu="61 %, 3.2 GiB",
    elapsed_s=12.0,
    job_lines=("epoch 1", "[red]loss[/red] 0.5 \x1b[31m:smile:\x07", " 10%|#\r 20%|##\r"),
)


def drawn(status: LiveStatus, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(render_live(status, width, height))
    return console.export_text().splitlines()


def test_the_plain_line_has_the_form_of_the_performance_listener() -> None:
    assert plain_line(replace(BUSY, gpu="")) == (
        "ETL: 0.2 ms; iteration 120; iteration time: 23.1 ms; samples/sec: 1385.3; batches/sec: 43.3; "
        "GC: 2 (1.4 ms); CPU: 1.0 cores; memory: 412 MiB"
    )


def test_what_is_unknown_is_left_out() -> None:
    assert plain_line(LiveStatus("starting", elapsed_s=3.25)) == "starting (3 s)"
    assert plain_line(LiveStatus("observing", step=7)) == "iteration 7"
    assert not any("None" in line or "speed" in line for line in drawn(LiveStatus("starting")))


def test_known_zeros_are_printed() -> None:
    line = plain_line(LiveStatus("observing", step=7, input_wait_ms=0.0, gc_count=0, gc_ms=0.0))
    assert line == "ETL: 0.0 ms; iteration 7; GC: 0"


def test_the_panel_says_what_is_going_on() -> None:
    text = "\n".join(drawn(BUSY))
    for piece in (
        "perfdoctor: observing, 12 s",
        "━━━━━",
        "60 %, about 8 s left",
        "23.1 ms per step, 1,385 samples/s, 43.3 batches/s",
        "waiting for data 0.20 ms per step, garbage collections 2 (1.4 ms)",
        "CPU 1.0 cores, memory 412 MiB, GPU 61 %, 3.2 GiB",
    ):
        assert piece in text


def test_the_jobs_lines_are_shown_as_text() -> None:
    *_, first, second, third = drawn(BUSY)
    assert first == "epoch 1"
    assert second.rstrip() == "[red]loss[/red] 0.5 :smile:"
    assert third.rstrip() == " 20%|##"


@pytest.mark.parametrize("height", [1, 3, 6, 8, 24])
@pytest.mark.parametrize("width", [10, 40, 80])
def test_it_never_outgrows_the_terminal(width: int, height: int) -> None:
    lines = drawn(replace(BUSY, job_lines=tuple(f"{i} " + "界" * 200 for i in range(50))), width, height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    if height == 24 and width >= 20:
        assert lines[-1].startswith("49 ")
