"""What the windows saw of layers and lines, in terms of an ordinary step."""

from __future__ import annotations

from ..recording.model import LineRow, ProcessRecording, SitesWindow
from .model import Layer, LayerProfile, Line, Missing, Site, Step
from .places import Places

_NOWHERE = Places({}, "")
_REMEDY = "let the job run for 20 steps or more"


def layers(process: ProcessRecording, step: Step | Missing, places: Places = _NOWHERE) -> LayerProfile | Missing:
    """The modules in the operator window.

    The profiler makes work longer, so that it never fills more than an ordinary step has room for.
    """
    window = process.ops
    if window is None:
        return Missing("the operator window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the operator window could not open: {window.missing}")
    seen = window.layers
    if seen is None:
        return Missing("the recording is older than the table of layers")
    if seen.missing:
        return Missing(f"layers were not told apart: {seen.missing}")
    if window.device and seen.modules and not seen.on_device:
        return Missing("the device's work could not be matched with layers")
    steps = max(1, window.steps)
    profiled_ms = seen.total_us / 1000 / steps
    room_ms = profiled_ms if isinstance(step, Missing) else step.step_ms - step.parts.input_wait - step.parts.gc
    scale = min(1.0, room_ms / profiled_ms) if profiled_ms > 0 else 1.0
    unit = scale / 1000 / steps
    return LayerProfile(
        layers=tuple(
            Layer(
                name=row.name,
                kind=row.kind,
                order=row.order,
                leaf=row.leaf,
                calls_per_step=row.calls / steps,
                forward_ms=row.forward_us * unit,
                backward_ms=row.backward_us * unit,
                time_share=(row.forward_us + row.backward_us) / seen.total_us if seen.total_us else 0.0,
                flops_per_step=row.flops / steps,
                flop_share=row.flops / seen.flops if seen.flops else 0.0,
                parameters=row.parameters,
                parameter_bytes=row.bytes,
                input_shape=row.input,
                weight_shape=row.weight,
                aside=row.aside,
                idle=row.idle,
                called_at=places.find(row.site),
                own=row.own,
            )
            for row in seen.modules
        ),
        count=seen.count,
        total_ms=profiled_ms * scale,
        flops_per_step=seen.flops / steps,
        on_device=seen.on_device,
        stray_ms=0.0 if seen.on_device else window.stray_us * unit,
    )


def hot_lines(process: ProcessRecording, places: Places, step: Step | Missing) -> tuple[Line, ...] | Missing:
    """The lines of the call-site window, the most expensive first.

    Watching makes every operator several times dearer, so a line's cost is its share of what its part of the step
    takes in ordinary steps, not what it took in the window.
    """
    window = process.call_sites
    if window is None:
        return Missing("the call-site window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the call-site window could not open: {window.missing}")
    if window.lines is None:
        return Missing("the recording is older than the table of lines")
    if isinstance(step, Missing):
        return step
    found = [
        _line(row, site, window, step.parts.as_dict().get(row.part, 0.0))
        for row in window.lines
        if (site := places.find(row.site)) is not None
    ]
    return tuple(sorted(found, key=lambda line: -line.ms_per_step))


def _line(row: LineRow, site: Site, window: SitesWindow, part_ms: float) -> Line:
    steps = max(1, window.steps)
    part_us, part_ops = window.lines_us.get(row.part, 0), window.lines_ops.get(row.part, 0)
    share = (row.us + row.python_us) / part_us if part_us else 0.0
    return Line(
        site=site,
        part=row.part,
        ops_per_step=row.ops / steps,
        ms_per_step=part_ms * share,
        ops_ms=row.us / 1000 / steps,
        share=share,
        ops_share=row.ops / part_ops if part_ops else 0.0,
        runs_per_step=row.calls / max(1, row.places) / steps,
        passes_per_step=row.passes / steps,
    )
