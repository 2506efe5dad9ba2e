"""From collected tables to those of a `Trace`: impossible events left out, rows in order, work with its calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import Columns, TableName, Tables
from .model import NOT_SAID, Calls, Floats, HostSpans, Ints, Marks, Operators, Work

SPANS: tuple[TableName, ...] = ("operators", "calls", "work", "marks", "frames")
_IDENTITIES: dict[TableName, str] = {
    "operators": "external",
    "calls": "correlation",
    "work": "correlation",
    "marks": "name",
}
"""Columns that tell two events of one kind apart. Functions have none, and are often alike to the microsecond."""

_HOUR_US = 3.6e9
_MARGIN_US = 1e6
"""What the profiler flushes after its window: kernels that were in the queue."""
_TIMES_AS_LONG = 10
"""An event so much longer than from the first start to the last is an error of the profiler, where that did not write
down its own window; a last synchronisation may well be longer than all before it."""
_CONTAINED = 3
"""A stream runs one thing at a time, so that an event around so many whole others has an impossible length. Overlaps of
a few microseconds happen, and the kernels of one CUDA graph run side by side."""
_SERIAL_SHARE = 0.01
"""Of a stream's work around others: with more it is a queue that runs things side by side."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """The tables of a trace."""

    operators: Operators
    calls: Calls
    work: Work
    marks: Marks
    frames: HostSpans


def assemble(tables: Tables, left_out: Counter[str]) -> Assembled:
    """Takes the tables' rows; adds to `left_out` what it drops, by what is wrong with it."""
    windows = tables.take("windows")
    spans = {table: tables.take(table) for table in SPANS}
    first, last = _bounds(np.concatenate([spans[table]["start_us"] for table in SPANS]), windows)
    for table, columns in spans.items():
        possible = (columns["start_us"] >= first) & (columns["end_us"] <= last)
        left_out["of impossible times"] += int(np.count_nonzero(~possible))
        spans[table] = _ordered(columns, possible)
        if table in _IDENTITIES:
            spans[table] = _distinct(spans[table], _IDENTITIES[table], left_out)
    impossible = _around_others(spans["work"])
    left_out["of impossible times"] += int(np.count_nonzero(impossible))
    spans["work"] = {name: column[~impossible] for name, column in spans["work"].items()}

    work, calls = spans["work"], spans["calls"]
    work["call"] = _by_correlation(work["correlation"], calls["correlation"])
    _by_flow(work, calls, tables.take("arrivals"), tables.take("departures"))
    origin = min((columns["start_us"][0] for columns in spans.values() if len(columns["start_us"])), default=0.0)
    for columns in spans.values():
        columns["start_us"] = columns["start_us"] - origin
        columns["end_us"] = columns["end_us"] - origin
    return Assembled(
        operators=Operators(**spans["operators"]),
        calls=Calls(**calls),
        work=Work(**work),
        marks=Marks(**spans["marks"]),
        frames=HostSpans(**spans["frames"]),
    )


def _bounds(starts: Floats, windows: Columns) -> tuple[float, float]:
    """Between which times an event may lie: what the profiler says it recorded, or else what most starts say."""
    if not len(starts):
        return 0.0, 0.0
    if len(windows["start_us"]):
        first, last = float(windows["start_us"].min()), float(windows["end_us"].max())
        if np.count_nonzero((starts >= first) & (starts <= last)) > len(starts) / 2:
            margin = max(_MARGIN_US, last - first)
            return first - margin, last + margin
    middle, low, high = (float(np.quantile(starts, share)) for share in (0.5, 0.01, 0.99))
    near = _HOUR_US + _TIMES_AS_LONG * (high - low)
    believed = starts[np.abs(starts - middle) <= near]
    first, last = float(believed.min()), float(believed.max())
    return first, last + max(_HOUR_US, _TIMES_AS_LONG * (last - first))


def _ordered(columns: Columns, rows: npt.NDArray[np.bool_]) -> Columns:
    """Rows by start, the longer first: what is around another comes before it."""
    order = np.flatnonzero(rows)
    order = order[np.lexsort((-columns["end_us"][order], columns["start_us"][order]))]
    return {name: column[order] for name, column in columns.items()}


def _distinct(columns: Columns, identity: str, left_out: Counter[str]) -> Columns:
    """Without rows that have an identity and are the same in every column as one before."""
    start = columns["start_us"]
    if len(start) < 2:
        return columns
    alike = (start[1:] == start[:-1]) & (columns["end_us"][1:] == columns["end_us"][:-1])
    beside_another = np.concatenate([alike, [False]]) | np.concatenate([[False], alike])
    suspects = np.flatnonzero(beside_another & (columns[identity] != NOT_SAID))
    if not len(suspects):
        return columns
    _, first = np.unique(np.stack([column[suspects] for column in columns.values()]), axis=1, return_index=True)
    again = np.setdiff1d(suspects, suspects[first])
    left_out["that are there twice"] += len(again)
    return {name: np.delete(column, again) for name, column in columns.items()}


def _around_others(work: Columns) -> npt.NDArray[np.bool_]:
    """Rows of work whose length cannot be, since other work of the same stream ran in between."""
    impossible = np.zeros(len(work["start_us"]), np.bool_)
    streams = np.stack([work["device"], work["stream"]])
    for stream in np.unique(streams, axis=1).T:
        rows = np.flatnonzero((stream == streams.T).all(axis=1))
        start, end, correlation = (work[name][rows] for name in ("start_us", "end_us", "correlation"))
        begun_within = np.searchsorted(start, end) - np.arange(len(rows)) - 1
        suspects = np.flatnonzero(begun_within >= _CONTAINED)
        found = [
            row
            for row in suspects
            for others in [slice(row + 1, row + 1 + begun_within[row])]
            if np.count_nonzero((end[others] <= end[row]) & (correlation[others] != correlation[row])) >= _CONTAINED
        ]
        if 0 < len(found) <= max(1, _SERIAL_SHARE * len(rows)):
            impossible[rows[found]] = True
    return impossible


def _by_correlation(wanted: Ints, correlation: Ints) -> Ints:
    """Row of the first call with each of these correlations; `NOT_SAID` where there is none."""
    if not len(correlation):
        return np.full(len(wanted), NOT_SAID)
    order = np.argsort(correlation, kind="stable")
    found = order[np.minimum(np.searchsorted(correlation[order], wanted), len(order) - 1)]
    return np.where((wanted > 0) & (correlation[found] == wanted), found, NOT_SAID)


def _by_flow(work: Columns, calls: Columns, arrivals: Columns, departures: Columns) -> None:
    """Fill in calls by the trace's arrows: from a call's start on its thread to the work's start on its stream."""
    lost = np.flatnonzero(work["call"] == NOT_SAID)
    if not len(lost) or not len(arrivals["flow"]):
        return
    near = np.isin(arrivals["start_us"], work["start_us"][lost])
    places = zip(*(arrivals[name][near].tolist() for name in ("start_us", "device", "stream")), strict=True)
    flows = dict(zip(places, arrivals["flow"][near].tolist(), strict=True))
    used = np.isin(departures["flow"], arrivals["flow"][near])
    origins = zip(*(departures[name][used].tolist() for name in ("start_us", "thread")), strict=True)
    left = dict(zip(departures["flow"][used].tolist(), origins, strict=True))
    begun = np.isin(calls["start_us"], departures["start_us"][used])
    made = zip(*(calls[name][begun].tolist() for name in ("start_us", "thread")), strict=True)
    rows = dict(zip(made, np.flatnonzero(begun).tolist(), strict=True))
    for row in lost.tolist():
        where = (work["start_us"][row], work["device"][row], work["stream"][row])
        work["call"][row] = rows.get(left.get(flows.get(where, NOT_SAID)), NOT_SAID)  # type: ignore[arg-type]
