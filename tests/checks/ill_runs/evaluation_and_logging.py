"""Runs that log or evaluate for much of their time."""

from __future__ import annotations

from samples import healthy, step, with_

from perfdoctor.evidence.model import Evidence, LoggingLine, Parts, Site

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


def metrics_by_sample(ms: float = 600.0, **changes: object) -> Evidence:
    """An evaluation of 20 batches of 32 samples, a fifth of it in forward passes, every 50 steps."""
    fields = {"samples": 32, "batches": 20.0, "forward_ms": 0.2 * ms, "wait_ms": 0.0, "start_ms": 0.0, "share": 0.2}
    return evaluating(ms, **{**fields, **changes})
