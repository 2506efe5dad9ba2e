"""Recurrent cells, which Python calls once per time step."""

from __future__ import annotations

from perfdoctor.api.quantities import Layer, Line

CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "RNNCell": "RNN"}
"""Kind of a cell -> the layer that runs it over a whole sequence."""
_AS_OFTEN = 1.5
"""Times by which a line's runs, which are estimated, and a cell's calls, which are counted, may differ."""


def runs_as_often(line: Line, cell: Layer) -> bool:
    """Whether a line may be the one that calls a cell."""
    fewer, more = sorted((line.runs_per_step, cell.calls_per_step))
    return more <= _AS_OFTEN * fewer
