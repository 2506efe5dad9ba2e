"""Runs that log or evaluate for much of their time."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import (
    CallSite,
    CodeLine,
    CollectedOutputs,
    Decoding,
    Evidence,
    Line,
    LoggingLine,
    Missing,
    Parts,
    Site,
    UnloadedPasses,
)

PRINT_LINE = Site("train.py", 47, "main")


def logging_loop(ms: float = 10.0) -> Evidence:
    """A step of 20 ms, and so much for printing in each."""
    return with_(
        healthy(),
        step=step(Parts(forward=8.0, backward=10.0, optimizer=2.0, logging=ms)),
        logging=(LoggingLine("print", PRINT_LINE, 2.0, ms),),
    )


def evaluating(ms: float = 3_000.0, every: float = 50.0, share: float = 0.7, **changes: object) -> Evidence:
    """Steps of 20 ms, and an evaluation every so many; in batches as large as training's."""
    fields = {
        "count": 8,
        "every_steps": every,
        "ms": ms,
        "share": share,
        "training_ms": 20.0 * every,
        "forward_ms": 0.9 * ms,
        **changes,
    }
    return with_(
        healthy(),
        step=step(Parts(forward=8.0, backward=10.0, optimizer=2.0), samples=32.0, irregular_ms=ms / every),
        **{f"evaluations__{name}": value for name, value in fields.items()},
    )


def scoring(ms: float = 8.0, **changes: object) -> Evidence:
    """Steps of 20 ms, so much of which evaluates on a tensor in memory."""
    fields = {"regular": True, "held_out": True, "samples": 0, "batches": 1.0, "wait_ms": 0.0, "start_ms": 0.0}
    return with_(evaluating(ms, 1.0, share=ms / 20, **{**fields, **changes}), step__irregular_ms=0.0)


def small_evaluation_batches(ms: float = 800.0, **changes: object) -> Evidence:
    """200 samples one by one, at 2 ms each; in training a sample takes 0.25 ms."""
    one_by_one = {"samples": 1, "batches": 200.0, "forward_ms": 0.5 * ms, "share": 0.2, **changes}
    return evaluating(ms, **one_by_one)


LOOP_LINES = (
    CodeLine(Site("metrics.py", 40, "hit"), "other", False, 1.0, 0.2, runs_per_step=32.0),
    CodeLine(Site("train.py", 62, "evaluate"), "other", False, 2.0, 0.2, runs_per_step=33.0),
    CodeLine(Site("train.py", 63, "evaluate"), "other", False, 4.0, 0.4, runs_per_step=32.0),
)


def metrics_by_sample(ms: float = 600.0, **changes: object) -> Evidence:
    """An evaluation of 20 batches of 32 samples, a fifth of it in forward passes, every 50 steps; four fifths of the
    rest are in lines that run for each sample."""
    fields = {"samples": 32, "batches": 20.0, "forward_ms": 0.2 * ms, "wait_ms": 0.0, "start_ms": 0.0, "share": 0.2}
    return evaluating(ms, **{**fields, "by_sample": LOOP_LINES, **changes})


def outputs_joined(kept_ms: float = 500.0, ms: float = 1500.0, **changes: object) -> Evidence:
    """An evaluation of 20 batches, half of it in forward passes, every 50 steps, that joins 400 MB of scores."""
    kept = CollectedOutputs(Site("train.py", 70, "main"), kept_ms, 4e8)
    return evaluating(ms, **{"batches": 20.0, "forward_ms": ms / 2, "share": 0.2, "collected": kept, **changes})


READ_LINE = Site("train.py", 66, "compute_loss")
COUNT_LINE = Site("metrics.py", 12, "ngrams")


def scored_in_python(
    count_ms: float = 8.0, kinds: tuple[tuple[str, str], ...] = (("to_list", "forward"),), issued_ms: float = 0.1
) -> Evidence:
    """BLEU of each training batch: 8 of the 25 ms; `kinds` are the conversions that were seen."""
    calls = tuple(CallSite(kind, READ_LINE, 2.0, 0.2, detail) for kind, detail in kinds)
    lines = (
        CodeLine(Site("train.py", 60, "compute_loss"), "forward", False, 9.0, 0.5),
        CodeLine(COUNT_LINE, "forward", True, count_ms, 0.3),
    )
    hot = (
        Line(Site("train.py", 60, "compute_loss"), "forward", 100.0, 9.0, 8.5, 0.5, 0.5, 1.0),
        Line(COUNT_LINE, "forward", 1.0, issued_ms, issued_ms, 0.01, 0.01, 1.0),
    )
    return with_(healthy(), call_sites=calls, code_lines=lines, hot_lines=hot)


def as_text(ms: float = 5.0, part: str = "forward", hot: bool = False) -> Evidence:
    """Activations in f-strings of two lines; of 25 ms."""
    lines = tuple(
        CodeLine(Site("model.py", 10 + 2 * place, "forward"), part, False, of_it * ms, of_it)
        for place, of_it in enumerate((0.4, 0.6))
    )
    calls = tuple(
        CallSite("to_list", with_(line.site, via="torch/_tensor_str.py:_vector_str"), 6.0, 0.1, "forward")
        for line in lines
    )
    issued = tuple(Line(line.site, part, 60.0, line.ms_per_step, 0.5, 0.1, 0.1, 1.0) for line in lines)
    seen: Any = {"hot_lines": issued, "code_lines": Missing("not seen")} if hot else {"code_lines": lines}
    return with_(healthy(), call_sites=calls, **seen)


def written_without_cache(ms_per_step: float = 20.0, regular: bool = False) -> Evidence:
    """Texts after every 40 steps, in 30 passes that grow by a token each."""
    seen = Decoding(ms_per_step, 30.0, 40.0, regular, Site("train.py", 57, "drafts"))
    return with_(healthy(), decoding=seen)


def small_passes(**changes: object) -> Evidence:
    """240 passes on a single sample take 240 ms, after every 40th step of 25 ms, whose pass on 32 takes 8."""
    seen = UnloadedPasses(ms=240.0, passes=240.0, samples=1.0, every_steps=40.0, at=Site("train.py", 70, "score"))
    return with_(healthy(), unloaded_passes=with_(seen, **changes))
