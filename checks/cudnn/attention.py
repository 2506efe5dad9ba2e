"""Attention that is not torch's fused kernel: made by hand, with its weights returned, or on the math path."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from perfdoctor.api.causes import PASSES_KEEP, in_step, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, savings, severity
from perfdoctor.api.quantities import Attention, Evidence, LibraryUse, Missing, OpProfile, Site, Step

from .._shared.lines import forward_line, layer_place, told_trainer
from .case import Limits

_SPREAD = 0.15
"""Of a measured timing: it is taken from single calls with warm caches."""
_IN_THE_JOB = (1.4, 0.95)
"""Times what the fused kernel takes in a replay, at most and at least: among cold tensors. Of two programs whose
replays by hand were 1.8 and 1.3 times as long, fusing took off what this says: 1.87x and 1.75x in all."""
_DISTURBED = 0.05
"""Of the step without a CPU: then what attention takes in the job is not its own time alone."""
_SLOWER = 1.1
"""The fused kernel is worth a finding when it beats what the job does by a tenth, measured."""
_ON_GPU = (0.3, 0.7)
"""Of the device's time in unfused attention. FlashAttention's authors measured 2 to 4 times the speed; less when the
sequences are short or masked."""
_GPU_KEYS = 256
"""Shorter sequences gain little on a GPU, by the same measurements."""
_MHA = "MultiheadAttention"
_PASSES = "fused attention"
"""The way in which whole passes were made again."""
_LEAST_LEFT = 0.05
"""Of what attention takes: a ratio beyond 20 says no more."""


@dataclass(frozen=True, slots=True)
class _Timed:
    """Per step, in milliseconds of an ordinary one."""

    spent: float
    low: float
    high: float
    times: float | None
    """What the job does over the fused kernel, measured."""
    of_passes: bool = False
    """Whole passes were made again with it."""

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True)
class _Words:
    id: str
    what: str
    why: str
    fix: Fix


def attention(evidence: Evidence, step: Step, ops: OpProfile, use: LibraryUse, limits: Limits) -> tuple[Finding, ...]:
    """One finding for each way."""
    by_hand = [one for one in use.attention if one.made == "by hand"]
    causal = _causal_sizes(evidence)
    ways: tuple[tuple[Callable[[list[Attention]], _Words], list[Attention]], ...] = (
        (_returned, [one for one in by_hand if one.module == _MHA]),
        (functools.partial(_by_hand, causal=causal), [one for one in by_hand if one.module != _MHA]),
        (_math, [one for one in use.attention if one.made == "math"]),
    )
    saved = None if use.on_device else tried(step, ops, _PASSES)
    by_hand_ms = in_step(step, ops, sum(one.ms_per_step for one in by_hand))
    timed = []
    for describe, some in ways:
        cost = _timed(step, ops, use, some, causal)
        # The passes are made again without the scores of both kinds of attention by hand.
        if saved is not None and cost.spent and describe is not _math:
            cost = _in_passes(cost, saved * cost.spent / by_hand_ms, any(_size(one) in causal for one in some))
        timed.append((describe, some, cost))
    return tuple(
        _finding(evidence, step, some, cost, describe(some), limits)
        for describe, some, cost in timed
        if cost.middle / step.step_ms >= limits.min_share and (cost.times is None or cost.times >= _SLOWER)
    )


def _causal_sizes(evidence: Evidence) -> set[str]:
    """Of masks that hide from each position those that follow: `320x320`."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    return {call.detail for call in calls if call.kind == "causal_mask"}


def _size(one: Attention) -> str:
    return f"{one.queries}x{one.keys}"


def _timed(step: Step, ops: OpProfile, use: LibraryUse, some: list[Attention], causal: set[str]) -> _Timed:
    if use.on_device:
        spent = min(step.step_ms, sum(one.ms_per_step for one in some if one.keys >= _GPU_KEYS))
        low, high = (part * spent for part in _ON_GPU)
        return _Timed(spent, low, high, None)
    spent = low = high = now = fused = 0.0
    disturbed = isinstance(step.run_delay_ms, Missing) or step.run_delay_ms > _DISTURBED * step.step_ms
    for one in some:
        mine = in_step(step, ops, one.ms_per_step)
        spent += mine
        timing = one.timing
        if isinstance(timing, Missing) or timing.now_ms <= 0:
            continue
        kernel_ms = timing.fused_ms
        if timing.causal_ms is not None and _size(one) in causal:
            kernel_ms = min(kernel_ms, timing.causal_ms)
        ratio = kernel_ms / timing.now_ms
        by_ratio = [mine * max(0.0, 1 - ratio * (1 + spread)) for spread in (_SPREAD, -_SPREAD)]
        # What is made by hand writes its scores to memory, and takes longer among the job's other tensors than in a
        # replay; the fused kernel does not.
        whole = kernel_ms / timing.part * one.calls_per_step
        by_kernel = [max(0.0, mine - whole * times) for times in _IN_THE_JOB]
        useful = ratio * _SLOWER <= 1
        low += max(by_ratio[0], by_kernel[0]) if useful and not disturbed else by_ratio[0]
        high += max(by_ratio[1], by_kernel[1]) if useful else by_ratio[1]
        now += timing.now_ms * one.calls_per_step
        fused += kernel_ms * one.calls_per_step
    return _Timed(spent, low, high, now / fused if fused > 0 else 0.0)


def _in_passes(cost: _Timed, saved: float, causal: bool) -> _Timed:
    """By what whole passes saved: among the job's tensors, and with the memory that scores take. They are made with any
    mask as it is; `causal`: the kernel can leave out what such a one hides."""
    low, high = (part * max(0.0, saved) for part in PASSES_KEEP)
    left = max(cost.spent - saved, _LEAST_LEFT * cost.spent)
    return replace(
        cost, low=low, high=max(high, cost.high) if causal else high, times=cost.spent / left, of_passes=True
    )


def _finding(
    evidence: Evidence, step: Step, some: list[Attention], timed: _Timed, words: _Words, limits: Limits
) -> Finding:
    largest, cost = some[0], Cost(step, timed.spent)
    sure = timed.low / step.step_ms >= limits.min_share
    measured = timed.times is not None
    ratio = () if timed.times is None else (Measurement("ratio", timed.times, "ratio", "now over fused, measured"),)
    return Finding(
        id=words.id,
        severity=severity(timed.middle / step.step_ms, limits.min_share, limits.error_share),
        confidence=(Confidence.HIGH if sure else Confidence.MEDIUM) if measured else Confidence.LOW,
        message=words.what + " takes {cost_ms} per step" + ("; speed-up {ratio} when fused" * measured),
        reasoning=words.why,
        evidence=(
            *cost.measured("attention per step, forward and backward"),
            *ratio,
            Measurement("layers", len(some), "count", "layers with it"),
            Measurement("layer", _title(largest), "text", "the costliest"),
            Measurement(
                "scores", f"{largest.batch} x {largest.queries} x {largest.keys}", "text", "its matrix of scores"
            ),
            Measurement("width", largest.width, "count", "width of a head"),
            Measurement("dropout", largest.dropout, "share", "dropout on the weights"),
        ),
        location=location(told_trainer(evidence.job, _site(evidence, some), "attn_implementation")),
        fix=words.fix,
        savings=savings(
            step,
            timed.low,
            timed.high,
            "whole forward and backward passes made again with the fused kernel after the last step"
            if timed.of_passes
            else "both ways timed in the job's process on tensors of the same shapes, forward and backward"
            if measured
            else "the device's time in it; fused kernels had a speed-up of 2x to 4x elsewhere, not in this run",
            ceiling=max(timed.high, timed.low),
        ),
    )


def _title(one: Attention) -> str:
    return f"{one.layer} ({one.module})" if one.layer else one.module or "outside any module"


def _site(evidence: Evidence, some: list[Attention]) -> Site | None:
    """The line of its softmax; where batches differ in length, the dearest softmax. Else that of its layer."""
    sizes = {_size(one) for one in some}
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    softmax = sorted((call for call in calls if call.kind == "softmax"), key=lambda call: call.detail not in sizes)
    return next(
        (call.site for call in softmax),
        layer_place(evidence, some[0].layer, some[0].module) or forward_line(evidence),
    )


def _by_hand(some: list[Attention], causal: set[str]) -> _Words:
    return _Words(
        "PD02.attention-by-hand",
        "attention made by hand",
        "the softmax of {layer} is taken over the result of a batched product, {scores}, and multiplied again: each "
        "of these is written to memory and read back, forward and backward",
        _fused(some, all(_size(one) in causal for one in some)),
    )


def _fused(some: list[Attention], causal: bool) -> Fix:
    risk = (
        "The attention weights themselves are no longer to be had, and the last digits differ. A mask that is true "
        "where keys are hidden must be inverted."
    )
    if all(one.package == "transformers" for one in some):
        return Fix(
            text="Let the model use torch's fused attention.",
            code='model = AutoModel.from_pretrained(..., attn_implementation="sdpa")',
            risk="`output_attentions=True` does not work with it, and the last digits differ.",
            remedies=("attention.sdpa",),
        )
    options = ""
    if causal:
        options += ", is_causal=True"
    elif any(one.mask for one in some):
        options += ", attn_mask=mask"
    if any(one.dropout for one in some):
        options += ", dropout_p=p if self.training else 0.0"
    return Fix(
        text="Call `scaled_dot_product_attention`; it scales by the root of the head's width itself"
        + (", and makes the causal mask." if causal else "."),
        code=f"y = torch.nn.functional.scaled_dot_product_attention(q, k, v{options})",
        risk=risk,
        remedies=("attention.sdpa",),
    )


def _returned(_some: list[Attention]) -> _Words:
    return _Words(
        "PD02.attention-weights-returned",
        "`nn.MultiheadAttention` with `need_weights=True`",
        "{layer} was called with the default, `need_weights=True`: it returns "
        "{scores} weights, which torch's fused kernel does not compute",
        Fix(
            text="Ask for the output alone, unless the weights are used.",
            code="output, _ = attention(q, k, v, need_weights=False)",
            risk="The second result is then None.",
            remedies=("attention.sdpa",),
        ),
    )


def _math(some: list[Attention]) -> _Words:
    timing = some[0].timing
    switched_off = not isinstance(timing, Missing) and timing.choice == "math"
    return _Words(
        "PD02.attention-math",
        "unfused `scaled_dot_product_attention`",
        "the fused kernels are switched off in the whole process"
        if switched_off
        else "torch takes the unfused path inside `sdpa_kernel(SDPBackend.MATH)`, for a mask that requires a gradient, "
        "and for values of another width than queries",
        Fix(
            text="Let torch choose the kernel; give the mask no gradient, and values the width of queries.",
            code="torch.backends.cuda.enable_flash_sdp(True)  # the CPU's kernel has the same switch\n"
            "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.detach())",
            risk="The last digits differ; a mask that is learned must stay as it is.",
            remedies=("attention.sdpa",),
        ),
    )
