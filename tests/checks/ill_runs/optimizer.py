"""Runs that update slowly, or go through their parameters one by one."""

from __future__ import annotations

from typing import Any

from samples import HOT_LINES, healthy, step, with_

from perfdoctor.evidence.model import (
    CallSite,
    Evidence,
    Issued,
    Line,
    Loop,
    ParameterTiming,
    Parts,
    PassAgain,
    SingleDerivatives,
    Site,
    UpdateTiming,
)

NORM_LINE = Site("clip.py", 12, "clip", "torch/functional.py:norm")
HEADER = "for p in model.parameters()"
TIMING = ParameterTiming(
    norms_ms=1.0,
    norms_together_ms=0.3,
    averages_ms=1.0,
    averages_together_ms=0.2,
    zeroed_ms=6.0,
    released_ms=2.0,
    tensors=120,
)
_PARTS = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=4.7)


def parameter_loop(
    ms: float = 3.0, header: str = HEADER, part: str = "other", reads: float = 0.0, via: str = ""
) -> Evidence:
    """Two lines of a function that run once for each of 120 parameters, and take so long a step together; of 25 ms."""
    lines = tuple(
        Line(
            with_(NORM_LINE, line=12 + 3 * i, via=via),
            *(part, 120.0, share * ms, share * ms / 2, share, share, 120.0),
            loop=Loop(11, header),
        )
        for i, share in enumerate((0.7, 0.3))
    )
    calls = (CallSite("scalar_read", lines[0].site, reads, 0.002 * reads, "other"),) if reads else ()
    return with_(healthy(), step=step(_PARTS), hot_lines=(*lines, *HOT_LINES), call_sites=calls, ops__parameters=TIMING)


def clipping(ms: float = 3.0, ops: float = 960.0) -> Evidence:
    """`clip_grad_norm_` with so many operators for 120 tensors."""
    line = Line(
        with_(NORM_LINE, via="torch/nn/utils/clip_grad.py:_get_total_norm"), "other", ops, ms, ms / 2, 0.6, 0.6, 1.0
    )
    return with_(healthy(), step=step(_PARTS), hot_lines=(line, *HOT_LINES), ops__parameters=TIMING)


def factorized(ms: float = 9.0, ops_ms: float = 9.0, name: str = "_linalg_eigh", part: str = "optimizer") -> Evidence:
    """An optimizer of the job's own: its eigendecompositions, and what is made of them, of 34 ms a step."""
    lines = (
        Line(
            with_(NORM_LINE, line=40, function="inverse_root", via=""),
            *(part, 12.0, ms, ops_ms, 0.7, 0.05, 12.0),
            operators=(Issued(name, 1.0),),
        ),
        Line(
            with_(NORM_LINE, line=41, function="inverse_root", via=""),
            *(part, 60.0, 2.0, 1.0, 0.15, 0.25, 12.0),
            operators=(Issued("mul", 0.6), Issued("pow", 0.4)),
        ),
    )
    return with_(healthy(), step=step(with_(_PARTS, optimizer=13.0)), hot_lines=(*lines, *HOT_LINES))


def zeroed(**timing: Any) -> Evidence:
    """`zero_grad(set_to_none=False)`, after the forward pass."""
    line = Line(
        Site("train.py", 40, "main", "torch/optim/optimizer.py:zero_grad"), "forward", 120.0, 0.5, 0.4, *[0.1] * 3
    )
    return with_(healthy(), hot_lines=(line, *HOT_LINES), ops__parameters=with_(TIMING, **timing))


def state_copies(copying_ms: float = 3.0) -> Evidence:
    """An average of the weights that copies the state, so long, and goes through 40 tensors of it, a third of that."""
    copying = Site("ema.py", 37, "update", "torch/nn/modules/module.py:_save_to_state_dict")
    averaging = Site("ema.py", 40, "update")
    lines = (
        Line(copying, "other", 320.0, copying_ms, 1.6, 0.6, 0.7, 1.0),
        Line(averaging, "other", 120.0, copying_ms / 3, 0.8, 0.2, 0.3, 40.0),
        Line(with_(averaging, function="main"), "other", 4.0, 0.5, 0.1, 0.1, 0.0, 1.0),
    )
    return with_(healthy(), step=step(_PARTS), hot_lines=(*lines, *HOT_LINES))


def copied_model(copying_ms: float = 3.0) -> Evidence:
    """A deep copy of a model of ten tensors, averaged by a loop that takes a third of that."""
    copying = Site("target.py", 30, "<module>", "torch/nn/parameter.py:__deepcopy__")
    averaging = Line(Site("target.py", 32, "<module>"), "other", 20.0, copying_ms / 3, 0.8, 0.2, 0.3, 10.0)
    lines = (Line(copying, "other", 20.0, copying_ms, 1.6, 0.6, 0.7, 1.0), averaging)
    return with_(healthy(), step=step(_PARTS), hot_lines=(*lines, *HOT_LINES))


def slow_update(spent_ms: float = 6.0, **timing: Any) -> Evidence:
    """Adam loops over 200 tensors; of the step of 25 ms it takes so much."""
    adam = UpdateTiming("Adam", "loop", 200, now_ms=1.5, foreach_ms=0.9, fused_ms=0.3)
    return with_(
        healthy(),
        step=step(Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=spent_ms, other=6.7 - spent_ms)),
        ops__update=with_(adam, **timing),
    )


def many_groups(**timing: Any) -> Evidence:
    """A fused Adam with a group for each of 200 tensors, of which an update takes 6 of the step's 25 ms."""
    groups = {"made": "fused", "fused_ms": None, "foreach_ms": 1.6, "groups": 200, "groups_needed": 2}
    together = {"now_together_ms": 0.3, "foreach_together_ms": 0.9}
    return slow_update(**{**groups, **together, **timing})


def refreshed_statistics(calls: float = 0.05, ms: float = 6.0) -> Evidence:
    """A pass of all data through the averaged model, every 20 steps."""
    call = CallSite("update_bn", Site("train.py", 61, "average"), calls, ms)
    return with_(healthy(), step=with_(step(_PARTS), irregular_ms=ms), statistics_updates=(call,))


def stepped_schedule(calls: float = 8.0, ms: float = 3.0) -> Evidence:
    """In a loop over eight micro-batches."""
    call = CallSite("schedule", Site("train.py", 58, "main"), calls, ms)
    return with_(healthy(), step=step(_PARTS), schedules=(call,))


def went_back_again(ms: float = 3.0) -> Evidence:
    """Losses that go back one by one through what they share."""
    again = PassAgain(Site("nuclei.py", 100, "train"), 90.0, ms)
    return with_(healthy(), passes_again=(again,))


def derived_one_by_one(saved_ms: float = 3.0, **changes: Any) -> Evidence:
    """Four calls of `grad` that go through graphs which others have gone through before."""
    one = SingleDerivatives(Site("surge.py", 31, "slopes"), 4.0, saved_ms, saved_ms, True)
    return with_(healthy(), derivatives=(with_(one, **changes),))
