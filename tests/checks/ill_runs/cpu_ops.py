"""Runs with reads, copies and loops in Python."""

from __future__ import annotations

from typing import Any

from samples import HOT_LINES, healthy, on_gpu, step, with_

from perfdoctor.evidence.model import (
    CallSite,
    CodeLine,
    EpochStarts,
    Evidence,
    InTurn,
    Issued,
    Line,
    Loop,
    Parts,
    RepeatedRows,
    Site,
)

LOSS_LINE = Site("train.py", 50, "sample_loss")

TOWER_LINE = Site("model.py", 21, "forward")

DECODER_LINE = Site("train.py", 119, "train")

READ_LINE = Site("train.py", 60, "main")


def element_loop(runs: float = 256.0, share: float = 0.6, op_us: float = 4.0, **changes: Any) -> Evidence:
    """Two lines of a loss that run once per sample and take this share of the forward pass together."""
    ops = 3 * runs
    forward = 8.0 * share
    lines = tuple(
        Line(
            with_(LOSS_LINE, line=50 + i, **{"function": "sample_loss", **changes}),
            *("forward", part * ops, part * forward, part * ops * op_us / 1000, part * share, part * share, runs),
        )
        for i, part in enumerate((0.7, 0.3))
    )
    others = (
        with_(one, ops_per_step=one.ops_per_step + 2 * ops) if one.part == "backward" else one for one in HOT_LINES
    )
    return with_(healthy(), hot_lines=(*lines, *others))


def sequential_loop(*carries: str, **changes: Any) -> Evidence:
    """The same loop with its source read: what an iteration needs of the one before."""
    run = element_loop(**changes)
    loop = Loop(48, "for t in range(256)", carries)
    looped = [with_(line, loop=loop) if line.runs_per_step > 1 else line for line in run.hot_lines]  # type: ignore[union-attr]
    return with_(run, hot_lines=tuple(looped))


def scalar_reads(reads: float = 200.0, line_ms: float = 4.0, each_us: float = 2.0, **call: Any) -> Evidence:
    """A line that reads one scalar per run, and takes so long a step."""
    found = CallSite("scalar_read", READ_LINE, reads, reads * each_us / 1000, "other")
    line = Line(READ_LINE, "other", 4 * reads, line_ms, line_ms / 3, 0.9, 0.9, reads)
    return with_(
        healthy(),
        step=step(Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=4.7)),
        call_sites=(with_(found, **call),),
        hot_lines=(line, *HOT_LINES),
    )


SWITCH_LINE = Site("train.py", 8, "main")


def anomaly_detection(traces_ms: float = 9.0, checks_ms: float = 3.0, **call: Any) -> Evidence:
    """Of a step of 25 ms; 80 nodes in the graph."""
    traces = CallSite("anomaly_trace", SWITCH_LINE, 80.0, traces_ms, "switch")
    checks = CallSite("anomaly_check", SWITCH_LINE, 90.0, checks_ms, "switch")
    return with_(healthy(), call_sites=(with_(traces, **call), with_(checks, **call)))


def device_sync(reads: float = 3.0, ms: float = 5.0, **call: Any) -> Evidence:
    found = CallSite("scalar_read", READ_LINE, reads, ms, "forward")
    return on_gpu(call_sites=(with_(found, **call),))


def list_conversion(ms: float = 3.0, part: str = "other", back: str = "main") -> Evidence:
    return with_(
        healthy(),
        call_sites=(
            CallSite("to_list", READ_LINE, 2.0, 0.2 * ms, part),
            CallSite("from_list", Site("train.py", 64, back), 2.0, 0.8 * ms, part),
        ),
    )


def round_trip(ms: float = 3.0, back: str = "main", copies: float = 2.0) -> Evidence:
    return on_gpu(
        call_sites=(
            CallSite("copy", READ_LINE, copies, 0.8 * ms, "cuda->cpu"),
            CallSite("copy", Site("train.py", 64, back), copies, 0.2 * ms, "cpu->cuda"),
        )
    )


DRAW_LINE = Site("replay.py", 33, "draw")


def python_work(ms: float = 5.0, issued_ms: float = 0.1, asleep_ms: float = 0.0, **line: Any) -> Evidence:
    """So much of 25 ms and that in two lines of a replay buffer, four fifths of it in one of them."""
    parts = Parts(input_wait=0.3, forward=8.0, backward=14.0, optimizer=2.0, other=0.6 + ms)
    lines = (
        CodeLine(DRAW_LINE, "other", False, 0.8 * ms, 0.7, runs_per_step=1.0),
        CodeLine(with_(DRAW_LINE, line=35), "other", False, 0.2 * ms, 0.2, runs_per_step=2.0),
        CodeLine(Site("train.py", 60, "main"), "other", False, 0.4, 0.1, runs_per_step=1.0),
    )
    hot = Line(DRAW_LINE, "other", 1.0, issued_ms, issued_ms, 0.01, 0.01, 1.0)
    return with_(
        healthy(),
        step=with_(step(parts), cpu_ms=sum(parts.as_dict().values()) - parts.input_wait - asleep_ms),
        code_lines=tuple(with_(one, **line) for one in lines),
        hot_lines=(hot, *HOT_LINES),
    )


def decomposed(name: str = "_linalg_svd", ms: float = 8.0, share: float = 0.9, part: str = "forward") -> Evidence:
    """Singular values of each layer's weights for a penalty, at two lines; of 25 ms and that."""
    parts = Parts(input_wait=0.3, forward=8.0 + ms, backward=14.0, optimizer=2.0, other=0.6)
    lines = tuple(
        Line(
            Site("penalty.py", 12 + place, "spectral", "torch/linalg:matrix_norm"),
            *(part, 12.0, of_it * ms, of_it * ms, 0.3, 0.2, 4.0),
            operators=(Issued(name, share), Issued("amax", 1 - share)),
        )
        for place, of_it in enumerate((0.75, 0.25))
    )
    return with_(healthy(), step=step(parts), hot_lines=(*lines, *HOT_LINES))


def drawn_each_epoch(ms: float = 400.0, part: str = "other") -> Evidence:
    """So much in two lines of a replay buffer, three quarters of it in one of them, before one step of 50."""
    lines = (
        CodeLine(DRAW_LINE, part, False, 0.75 * ms, 0.6, runs_per_step=5000.0),
        CodeLine(with_(DRAW_LINE, line=35), part, False, 0.25 * ms, 0.2, runs_per_step=5000.0),
        CodeLine(Site("train.py", 60, "main"), part, False, 2.0, 0.1, runs_per_step=1.0),
    )
    starts = EpochStarts((), (), (), 0, every_steps=50, ms=1.1 * ms, regular=False, lines=lines)
    plain = healthy()
    return with_(plain, epoch_starts=starts, step=with_(plain.step, irregular_ms=1.1 * ms / 50))


def repeated_rows(
    once_ms: float = 1.0, milliseconds: float = 12.0, different: int = 32, commonest: int = 20
) -> Evidence:
    """A tower that is given 640 rows, each of 32 ones 20 times; a pass takes 8 ms, and so much with each once."""
    seen = RepeatedRows("tower", "Sequential", TOWER_LINE, 1.0, milliseconds, 640, different, commonest, 8.0, once_ms)
    return with_(healthy(), ops__repeated_rows=(seen,))


def by_prefix(once_ms: float = 2.0) -> Evidence:
    """A writer that is called for 40 beginnings of a text, of which one of half its length takes 0.5 ms."""
    seen = InTurn("writer", "Writer", DECODER_LINE, "for t in range(1, T)", 40.0, 18.0, 40, 40, 0.5, once_ms, 48, True)
    return with_(healthy(), ops__in_turn=(seen,))


def in_turn(once_ms: float = 10.0, milliseconds: float = 18.0, loop: str = "for t in range(T)") -> Evidence:
    """A decoder that is called for 40 positions, of which each takes 0.5 ms, and 20 in one call so much."""
    seen = InTurn("decoder", "Decoder", DECODER_LINE, loop, 40.0, milliseconds, 40, 20, 0.5, once_ms / 2, loop_line=48)
    return with_(healthy(), ops__in_turn=(seen,))
