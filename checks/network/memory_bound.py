"""Layers that take far more of the time than of the arithmetic: they move memory, or launch small kernels."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, milliseconds
from perfdoctor.api.quantities import Evidence, Job, Layer, Missing

from .._shared.in_python import lines_in_python
from .._shared.lines import CELLS
from .._shared.wording import in_words_of
from .case import Case
from .layer_table import LESS, about, shape

_UNCOUNTED = ("Embedding", "EmbeddingBag", *CELLS)
"""Kinds with a finding of their own."""
_LOOPED_RUNS = 8
"""Runs of a line in one call of a layer, from which on Python repeats it there."""
_LOOPED_SHARE = 0.5
"""Of a layer's forward pass in such lines, from which on the loop is what is slow: PD10 names it, with its line."""
_LOOKUPS = ("index", "_index_put_impl_", "index_put_", "index_select", "index_add_", "gather", "scatter_add_")
_REWRITTEN = 0.3
"""Of a layer's time, that others save, from which on they are what is to be done about it."""
_DOUBLE = 0.5
"""Of a layer's time, in operators of the whole step in float64."""
_LOOKED_UP = 0.5
"""Of a layer's time, in such operators of the whole step, from which on they are what it does."""
_POOLED = (0.85, 0.98)
"""Of what such a layer takes on pictures: pooling by two leaves a quarter of the values, which fits into caches and
needs no fresh memory. 88 % of it was saved in one program, all of it and more in another."""


def memory_bound_layers(case: Case) -> tuple[Finding, ...]:
    """One for each such layer; none where nothing is known of the arithmetic."""
    if not case.profile.flops_per_step:
        return ()
    slow = [layer for layer in case.profile.layers if _is_slow(case, layer)]
    elsewhere = (_is_loop, _is_lookup, _is_rewritten, _is_double, _is_python)
    return tuple(
        _finding(case, layer) for layer in slow if not any(is_told(case.evidence, layer) for is_told in elsewhere)
    )


def _is_rewritten(evidence: Evidence, layer: Layer) -> bool:
    """Whether other operators were tried that spare much of what it may take: PD10 names those, with their line."""
    if not layer.own or isinstance(evidence.equivalents, Missing):
        return False
    return any(one.now_ms - one.other_ms >= _REWRITTEN * layer.ms for one in evidence.equivalents)


def _is_lookup(evidence: Evidence, layer: Layer) -> bool:
    """Whether it looks up rows of a table and little else: fusing operators spares none of that."""
    ops = evidence.ops
    found = [] if not layer.own or isinstance(ops, Missing) else [op for op in ops.ops if op.name in _LOOKUPS]
    return sum(op.self_ms_per_step for op in found) >= _LOOKED_UP * layer.ms


def _is_double(evidence: Evidence, layer: Layer) -> bool:
    """Whether most of its time may be arithmetic in float64: PD07 tells what that costs, with its line."""
    return not isinstance(evidence.ops, Missing) and layer.own and evidence.ops.self_ms("float64") >= _DOUBLE * layer.ms


def _is_python(evidence: Evidence, layer: Layer) -> bool:
    """Whether most of a `forward` of the user's may be Python, or a library other than torch: PD10 tells the line."""
    lines = [line for line in lines_in_python(evidence) if line.part == "forward"] if layer.own else []
    return sum(line.ms_per_step for line in lines) >= _LOOPED_SHARE * layer.forward_ms


def _is_slow(case: Case, layer: Layer) -> bool:
    return (
        layer.leaf
        and layer.kind not in _UNCOUNTED
        and layer.ms >= case.limits.slow_min_ms
        and case.sure_share(layer.ms) >= case.limits.slow_share
        and layer.time_share >= case.limits.slow_factor * layer.flop_share
    )


def _is_loop(evidence: Evidence, layer: Layer) -> bool:
    """Whether a `forward` of the user's loops over elements."""
    if not layer.own or isinstance(evidence.hot_lines, Missing):
        return False
    often = _LOOPED_RUNS * max(1.0, layer.calls_per_step)
    looped = [line for line in evidence.hot_lines if line.part == "forward" and line.runs_per_step >= often]
    return sum(line.ms_per_step for line in looped) >= _LOOPED_SHARE * layer.forward_ms


def _finding(case: Case, layer: Layer) -> Finding:
    # A random number takes longer than all else that is done with an element, and no fusion saves it.
    draws = "Dropout" in layer.kind
    pictures = len(layer.input_shape) == 4 and not draws
    excess = Cost(case.step, layer.ms * (1 - layer.flop_share / layer.time_share))
    job = case.evidence.job
    return Finding(
        id="PD09.memory-bound-layer",
        # What the job computes is its own choice, and less of it is another model; only its own code is at fault.
        severity=case.severity(Cost(case.step, layer.ms)) if layer.own and not draws else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="{layer} takes {cost_ms} per step ({cost_share}) for {flop_share} of the arithmetic",
        reasoning="{calls:call} per step on an input of {input}, mostly "
        + ("to draw random numbers; " if draws else "to move memory or launch small kernels; ")
        + "arithmetic alone would take {arithmetic_ms} at the rate of the other layers",
        evidence=(
            *about(layer, case.step),
            Measurement("calls", layer.calls_per_step, "count", "calls per step"),
            Measurement("input", shape(layer.input_shape) or "no tensor", "text", "input"),
            milliseconds("arithmetic_ms", layer.ms - excess.ms, "its share of the arithmetic"),
        ),
        location=location(layer.place),
        fix=_fewer_drawn() if draws else _fused(job) if layer.own else _less_moved(job),
        savings=excess.savings(
            _POOLED if pictures else LESS,
            "the layer's time beyond its share of the arithmetic; "
            + ("pooling by two saves 85 % of it and more" if pictures else "half of the elements take half of it"),
        ),
    )


def _fewer_drawn() -> Fix:
    return Fix(
        text="Let it work on less: on narrow layers, after pooling, on whole channels (`nn.Dropout2d`), or not "
        "at all where the model does not overfit.",
        code="nn.Dropout(0.0)",
        risk="Less regularisation: compare the validation loss.",
    )


def _fused(job: Job) -> Fix:
    return Fix(
        text="Use torch's own layer where there is one (`nn.RMSNorm`, `functional.scaled_dot_product_attention`), let "
        "this one work on less, or compile it.",
        code=_compiled(job, "fuses the operators of its forward"),
        risk="Compiling takes minutes at the start and again for new shapes.",
    )


def _less_moved(job: Job) -> Fix:
    # Measured on a CPU, forward and backward: 50 % of LocalResponseNorm, 47 % of BatchNorm2d, 62 % of LPPool2d;
    # nothing of LayerNorm, GroupNorm, Softmax, SELU, Upsample.
    return Fix(
        text="Let it work on less: after pooling or a stride, on fewer channels, or not at all. Compiling saves "
        "half of a layer that issues several operators (`nn.LocalResponseNorm`), and nothing of one that is a "
        "single kernel (`nn.LayerNorm`).",
        code="nn.Sequential(convolution, nn.MaxPool2d(2), norm)  # a quarter of the elements\n"
        + _compiled(job, "or fuse the layer's operators"),
        risk="A layer elsewhere may learn less: compare the validation loss. Compiling takes minutes at the start "
        "and again for new shapes.",
    )


def _compiled(job: Job, why: str) -> str:
    return in_words_of(
        job,
        f"model = torch.compile(model)  # {why}",
        transformers=f"TrainingArguments(..., torch_compile=True)  # {why}",
    )
