"""Lines of code as findings compare and write them, and recurrent cells, which Python calls once per time step."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.api.quantities import CallSite, Evidence, Job, Layer, Line, Missing, Site, Step

_ABOUT = 0.5
"""Of what the dearest module takes: networks of one step are of different sizes."""
PYTHON_PARTS = ("forward", "other")
"""The parts of a step in which the job's own Python issues the operators."""


def key(site: Site) -> tuple[str, int]:
    """What two places have in common that are one line."""
    return site.file, site.line


def room_ms(evidence: Evidence, step: Step, *sites: Site) -> float:
    """The parts of the step in which Python runs these lines, all of its parts where that is not known: what is timed
    in them, with somebody watching, takes no more."""
    here, lines = set(map(key, sites)), () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    known = {line.part for line in lines if key(line.site) in here and line.part in PYTHON_PARTS}
    parts = step.parts.as_dict()
    return sum(parts[name] for name in known or PYTHON_PARTS)


def function(site: Site) -> tuple[str, str]:
    """What two places have in common that are in one function."""
    return site.file, site.function


def layer_place(evidence: Evidence, name: str, kind: str) -> Site | None:
    """Where a layer is called, else where it is made, by its name and class."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    found = next((layer for layer in layers if (layer.name, layer.kind) == (name, kind)), None)
    return None if found is None else found.called_at or found.made_at


def forward_line(evidence: Evidence) -> Site | None:
    """The dearest line of the forward pass, else the one that calls the model."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    return next((line.site for line in lines if line.part == "forward"), None) or model_call(evidence)


def backward_line(evidence: Evidence) -> Line | None:
    """The line that asks for the backward pass most often."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    # A line that computes beside it, `(loss / n).backward()`, is none of torch's alone.
    asking = [line for line in lines if line.part == "backward" and (line.site.via or line.passes_per_update > 0)]
    return max(asking, key=lambda line: (line.passes_per_update, bool(line.site.via)), default=None)


def decided(at: Site | Missing, otherwise: Site | Missing | None) -> Site | Missing | None:
    """The line that decides something, where it is known."""
    return otherwise if isinstance(at, Missing) else at


def told_trainer(job: Job, site: Site | Missing | None, *options: str) -> Site | Missing | None:
    """The line that gives a trainer one of these options, where the site is that of a call in which a library decides;
    else the site."""
    decides = site is None or isinstance(site, Missing) or bool(site.via)
    return (job.option(*options) if decides else None) or site


def _model(evidence: Evidence) -> Layer | None:
    """The first module that the loop calls itself, of those that take about as long as the dearest of them.

    Before a model a step may call a metric, or a loss of the step before. What a module holds is called after it, and
    before the next one.
    """
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    took: list[tuple[Layer, float]] = []
    for layer in sorted(layers, key=lambda layer: layer.order):
        if not layer.name:
            took.append((layer, layer.ms))
        elif took:
            took[-1] = took[-1][0], took[-1][1] + layer.ms
    most = max((ms for _, ms in took), default=0.0)
    return next((layer for layer, ms in took if ms >= _ABOUT * most), None)


def model_call(evidence: Evidence) -> Site | None:
    """The line that calls the model."""
    model = _model(evidence)
    return None if model is None else model.called_at


def model_place(evidence: Evidence) -> Site | None:
    """The line that makes the model, else the one that calls it."""
    model = _model(evidence)
    return None if model is None else model.place


def asked_for(evidence: Evidence, calls: Sequence[CallSite]) -> Sequence[CallSite]:
    """Without those that the backward pass makes in return for others, unless there are no others."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    backward = {key(line.site) for line in lines if line.part == "backward"}
    return [call for call in calls if key(call.site) not in backward] or calls


def places(lines: Sequence[Line]) -> str:
    """Line numbers, with the file where it is not that of the dearest."""
    here = max(lines, key=lambda line: line.ms_per_step).site.file
    ordered = sorted({(line.site.file != here, line.site.file, line.site.line) for line in lines})
    return ", ".join(f"{file}:{line}" if elsewhere else str(line) for elsewhere, file, line in ordered)


CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "RNNCell": "RNN"}
"""Kind of a cell -> the layer that runs it over a whole sequence."""
_AS_OFTEN = 1.5
"""Times by which a line's runs, which are estimated, and a cell's calls, which are counted, may differ."""


def runs_as_often(line: Line, cell: Layer) -> bool:
    """Whether a line may be the one that calls a cell."""
    fewer, more = sorted((line.runs_per_step, cell.calls_per_step))
    return more <= _AS_OFTEN * fewer
