"""Which library did what, from the operator window; cuDNN's settings; shapes of batches."""

from __future__ import annotations

from typing import cast

from ..recording.model import AttentionRow, ConvolutionRow, OpsWindow, ProcessRecording, RecurrentRow, ShapesSeen
from .model import (
    Attention,
    AttentionTiming,
    Convolution,
    Cudnn,
    LayoutTiming,
    LibraryUse,
    Missing,
    Recurrent,
    ShapeVariety,
)
from .model.libraries import Made
from .model.operators import NOT_TIMED
from .operators import shown_shapes

_REMEDY = "let the job run for 20 steps or more"
_NO_CUDNN = Missing("the job does not use CUDA")
_LEAST_SAMPLED = 20
"""Batches looked at, below which nothing is said of their variety."""


_Row = ConvolutionRow | RecurrentRow | AttentionRow


def use(process: ProcessRecording) -> LibraryUse | Missing:
    """Of the operator window, per step."""
    window: OpsWindow | None = process.ops
    if window is None:
        return Missing("the operator window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the operator window could not open: {window.missing}")
    seen = window.library
    if seen is None:
        return Missing("this recording does not say which library did what", "record the job again")
    if seen.missing:
        return Missing(f"the profile could not be read: {seen.missing}")
    steps = max(1, window.steps)
    rows: list[_Row] = [*seen.convolutions, *seen.recurrent, *seen.attention]
    on_device = any(row.device_forward_us for row in rows)
    unit = 1 / 1000 / steps
    return LibraryUse(
        convolutions=tuple(_convolution(row, unit, steps, on_device) for row in seen.convolutions),
        recurrent=tuple(_recurrent(row, unit, steps, on_device) for row in seen.recurrent),
        attention=tuple(_attention(row, unit, steps, on_device, window.timed) for row in seen.attention),
        on_device=on_device,
        layout_ms=window.device.get("layout", 0) * unit,
        layout_timings=_layout_timings(window, unit),
    )


def _layout_timings(window: OpsWindow, unit: float) -> tuple[LayoutTiming, ...]:
    spent = {(row.name, row.dtype, row.shapes): row.total_us * unit for row in window.ops}
    return tuple(
        LayoutTiming(
            name=row.name.removeprefix("aten::"),
            shapes=shown_shapes(row.shapes),
            first_ms=row.first_us / 1000,
            last_ms=row.last_us / 1000,
            ms_per_step=spent.get((row.name, row.dtype, row.shapes), 0.0),
        )
        for row in window.layout
        if row.first_us > 0
    )


def _ms(row: _Row, unit: float, on_device: bool) -> float:
    if on_device:
        return (row.device_forward_us + row.device_backward_us) * unit
    return (row.forward_us + row.backward_us) * unit


def _convolution(row: ConvolutionRow, unit: float, steps: int, on_device: bool) -> Convolution:
    return Convolution(
        kernel=row.kernel.removeprefix("aten::"),
        choice=row.choice,
        chosen=row.chosen,
        layer=row.layer,
        module=row.module,
        dtype=row.dtype,
        input_shape=row.input,
        weight_shape=row.weight,
        channels_last=row.channels_last,
        calls_per_step=row.calls / steps,
        ms_per_step=_ms(row, unit, on_device),
    )


def _recurrent(row: RecurrentRow, unit: float, steps: int, on_device: bool) -> Recurrent:
    return Recurrent(
        kernel=row.kernel.removeprefix("aten::"),
        layer=row.layer,
        module=row.module,
        dtype=row.dtype,
        calls_per_step=row.calls / steps,
        ms_per_step=_ms(row, unit, on_device),
        copies_ms=row.copies_us * unit,
        native_ms=row.native_us / 1000,
        onednn_ms=row.onednn_us / 1000,
    )


def _attention(row: AttentionRow, unit: float, steps: int, on_device: bool, timed: bool) -> Attention:
    batch, queries, width, keys = row.sizes if len(row.sizes) == 4 else (0, 0, 0, 0)
    return Attention(
        made=cast(Made, row.made),
        layer=row.layer,
        module=row.module,
        dtype=row.dtype,
        batch=batch,
        package=row.package,
        queries=queries,
        width=width,
        keys=keys,
        mask=row.mask,
        dropout=row.dropout,
        calls_per_step=row.calls / steps,
        ms_per_step=_ms(row, unit, on_device),
        timing=AttentionTiming(row.now_us / 1000, row.fused_us / 1000, row.part, row.choice)
        if row.now_us > 0
        else (Missing("it was not replayed") if timed else NOT_TIMED),
    )


def cudnn(process: ProcessRecording) -> Cudnn | Missing:
    """Settings at the second step."""
    settings = process.settings
    if settings is None:
        return Missing("the job ended before its second step")
    seen = settings.cudnn
    if seen is None:
        return _NO_CUDNN if settings.cuda is None else Missing("this recording does not say", "record the job again")
    return Cudnn(
        available=seen.available,
        version=seen.version,
        error=seen.error,
        enabled=seen.enabled,
        enabled_in_forward=settings.cudnn_in_forward,
        benchmark=seen.benchmark,
        benchmark_limit=seen.benchmark_limit,
        deterministic=seen.deterministic,
        flash_attention=seen.flash_attention,
        shapes=_variety(process.shapes_seen),
    )


def _variety(seen: tuple[ShapesSeen, ...]) -> ShapeVariety | Missing:
    if not seen or seen[-1].sampled < _LEAST_SAMPLED:
        return Missing("too few batches were looked at", "let the job run for 200 steps or more")
    last = seen[-1]
    half = max((row.distinct for row in seen if row.sampled <= last.sampled / 2), default=last.distinct)
    return ShapeVariety(last.sampled, last.distinct, last.distinct - half)
