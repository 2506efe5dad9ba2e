"""Runs with memory that comes and goes."""

from __future__ import annotations

from typing import Any

from samples import CUDA_MEMORY, healthy, on_gpu, with_

from perfdoctor.evidence.model import (
    CallSite,
    CodeLine,
    EvalWithGrad,
    Evidence,
    Missing,
    PassWays,
    Site,
    TrainerOption,
)

TRIM_LINE = Site("train.py", 68, "tidy_memory")


def churn(faults_ms: float = 6.0, system_ms: float | None = None, **changes: Any) -> Evidence:
    """So many page faults at 500 ns each, in a kernel that worked as long or for `system_ms`."""
    return with_(
        healthy(),
        **{
            "memory__minor_faults": faults_ms * 1e6 / 500.0,
            "memory__system_cpu_ms": faults_ms if system_ms is None else system_ms,
            **changes,
        },
    )


def trimmed(call_ms: float = 1.5, faults_ms: float = 6.0, **changes: Any) -> Evidence:
    """A call of `malloc_trim` in each step, and the page faults of what it gives back."""
    evidence = churn(faults_ms, job__options=(TrainerOption("malloc_trim", TRIM_LINE),))
    line = CodeLine(TRIM_LINE, "other", False, call_ms, 0.1)
    return with_(evidence, **{"code_lines": (line,), **changes})


def emptied_cache(cost_ms: float = 2.0) -> Evidence:
    calls = (CallSite("empty_cache", Site("train.py", 61, "train_epoch"), 1.0, cost_ms),)
    return on_gpu(memory__empty_cache=calls)


def graph_in_evaluation(forward_ms: float = 10.0, **changes: Any) -> Evidence:
    """Validation between the training steps, whose forwards record graphs."""
    evaluation = EvalWithGrad(Site("train.py", 70, "validate"), 400, forward_ms)
    return with_(
        healthy(),
        **{"memory__eval_with_grad": evaluation, "step__irregular": 2, "step__irregular_ms": forward_ms, **changes},
    )


def unused_gradients(backward_ms: float = 6.0, **changes: Any) -> Evidence:
    """A model of one layer in training mode, 8 ms forward and so long backward, that no optimizer updates."""
    evidence = healthy()
    assert not isinstance(evidence.layers, Missing)
    idle = with_(evidence.layers.layers[0], forward_ms=8.0, backward_ms=backward_ms, idle=True, **changes)
    return with_(evidence, layers__layers=(idle, *evidence.layers.layers[1:]))


def cuda_allocator(**changes: Any) -> Evidence:
    return on_gpu(cuda_memory=with_(CUDA_MEMORY, **changes))


def checkpointed(kept_ms: float = 7.5, trainer: str = "") -> Evidence:
    """Passes that take 10 ms when made again, and so much with 200 MB of activations kept."""
    ways = PassWays(10.0, (("without checkpointing", kept_ms),), kept_bytes=200_000_000)
    return with_(healthy(), ops__ways=ways, job__trainer=trainer)
