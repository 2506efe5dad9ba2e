"""Reads a run directory. Tolerates a cut last line, unknown kinds and unknown fields; refuses what is foreign.

Files grow while the job runs, so a `ProcessFile` can be read again and again: it parses only what is new.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ..errors import PerfdoctorError
from ..injected._perfdoctor_probe import records
from . import model
from .directory import RunDirectory

T = TypeVar("T")
Record = Mapping[str, Any]

_BATCH_COLUMNS = ("loader", "step", "wait_us", "depth", "first", "transport_us", "transport_bytes")
_FETCH_COLUMNS = ("getitem_us", "getitem_cpu_us", "collate_us", "collate_cpu_us", "gc_us")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _build(kind: type[T], record: Record, **replaced: Any) -> T:
    """A dataclass from a record: fields it lacks keep their defaults, fields unknown here are ignored."""
    names = {f.name for f in fields(cast(Any, kind))}
    return kind(**{**{name: _tuples(record[name]) for name in names if name in record}, **replaced})


class ProcessFile:
    """One probe file, parsed as far as it has been written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._tail = b""
        self._records: dict[str, list[Record]] = {}
        self._problems: dict[str, int] = {}

    def refresh(self) -> None:
        """Parse what has been appended since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = self._tail + file.read()
            self._offset = file.tell()
        lines = data.split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            try:
                record = json.loads(line)
                kind = record["k"]
            except (ValueError, TypeError, KeyError):
                self._problem("a line that is not a record")
                continue
            if kind == "process" and record.get("version", 0) > records.VERSION:
                raise PerfdoctorError(
                    f"{self.path.name} was written by a newer perfdoctor "
                    f"(format {record['version']}, this one reads up to {records.VERSION})",
                    slug="newer-recording",
                    advice="upgrade perfdoctor: pip install --upgrade perfdoctor",
                )
            self._records.setdefault(kind, []).append(record)

    def _problem(self, what: str) -> None:
        self._problems[what] = self._problems.get(what, 0) + 1

    def _all(self, kind: str) -> Sequence[Record]:
        return self._records.get(kind, ())

    def _last(self, kind: str) -> Record | None:
        found = self._all(kind)
        return found[-1] if found else None

    @property
    def step_count(self) -> int:
        """Steps on disk so far."""
        last = self._last("steps")
        return int(last["first"]) + int(last["n"]) if last else 0

    def steps(self, since: int = 0) -> model.Columns:
        """The step rows, with `step`, `boundary` and `marked` columns added.

        Whole blocks: with `since`, from the block that holds that step.
        """
        blocks = [block for block in self._all("steps") if block["first"] + block["n"] > since]
        names = (*records.STEP_COLUMNS, "step", "boundary", "marked", "end_ns")
        if not blocks:
            return model.Columns({name: np.empty(0, np.int64) for name in names})
        columns = {name: _column(blocks, name) for name in records.STEP_COLUMNS}
        columns["step"] = np.concatenate([np.arange(b["first"], b["first"] + b["n"]) for b in blocks])
        columns["boundary"] = self._boundaries(columns["step"])
        columns["end_ns"] = _end_times(blocks, columns["wall_us"])
        marked = [step for b in blocks for step in b.get("marked", ())]
        columns["marked"] = np.isin(columns["step"], marked).astype(np.int64)
        return model.Columns(columns)

    def _boundaries(self, step: np.ndarray) -> np.ndarray:
        """What each of these steps ended at, as announced before it; the first announcement counts from the start."""
        announced = self._all("boundary")
        if not announced:
            return np.zeros(len(step), np.int64)
        kinds = np.array([model.BOUNDARIES.index(record["kind"]) for record in announced])
        since = np.array([record["step"] for record in announced])
        return kinds[np.maximum(np.searchsorted(since, step, side="right") - 1, 0)]

    def samples_per_step(self) -> float | None:
        """Samples per step so far, by the sizes of the first batches; None without a loader."""
        sizes = {r["loader"]: r["samples"] for r in self._all("batch")}
        batches = _columns(self._all("batches"), _BATCH_COLUMNS)
        total = sum(sizes.get(int(loader), 0) for loader in batches["loader"])
        return total / self.step_count if total and self.step_count else None

    def blocks(self) -> tuple[model.Block, ...]:
        """The blocks of trials so far."""
        return tuple(_build(model.Block, r) for r in self._all("block"))

    def _windows(self) -> dict[str, Record]:
        """The last window of each name, of those that saw the kind of step that the job has taken since."""
        last = self._last("boundary")
        since = int(last["step"]) if last else 0
        return {w["name"]: w for w in self._all("window") if w.get("first", since) >= since}

    def recording(self) -> model.ProcessRecording | None:
        """Everything read so far; None when even the first record is missing."""
        header = self._last("process")
        if header is None:
            return None
        problems = [f"{self.path.name}: {what} ({count})" for what, count in self._problems.items()]
        if self._tail:
            problems.append(f"{self.path.name}: the last line is cut")
        windows = self._windows()
        torch_import = self._last("torch")
        tracked = self._last("tracked")
        worker = self._last("worker")
        trials = self._last("trials")
        return model.ProcessRecording(
            header=_build(model.ProcessHeader, header),
            torch=_build(model.TorchImport, torch_import) if torch_import else None,
            worker=_build(model.WorkerHeader, worker) if worker else None,
            settings=_settings(self._last("settings")),
            steps=self.steps(),
            batches=_columns(self._all("batches"), _BATCH_COLUMNS),
            fetches=_columns(self._all("fetches"), _FETCH_COLUMNS),
            samples=tuple(_sample(record) for record in self._all("sample")),
            worker_samples=tuple(_build(model.WorkerSample, r) for r in self._all("worker_sample")),
            loaders=tuple(_build(model.LoaderMade, r) for r in self._all("loader")),
            iterators=tuple(_build(model.IteratorMade, r) for r in self._all("iter")),
            iterators_ended=tuple(_build(model.IteratorEnded, r) for r in self._all("iterend")),
            batches_seen=tuple(_build(model.BatchSeen, r) for r in self._all("batch")),
            shapes_seen=tuple(_build(model.ShapesSeen, r) for r in self._all("shapes")),
            collections=tuple(_build(model.Collections, r) for r in self._all("gc")),
            full_collections=tuple(_build(model.FullCollection, r) for r in self._all("full_gc")),
            calls=tuple(_build(model.Call, r) for r in self._all("call")),
            eval_with_grad=tuple(_build(model.EvalWithGradSeen, r) for r in self._all("eval_with_grad")),
            sites={r["id"]: _build(model.CodeSite, r) for r in self._all("site")},
            ops=_ops(windows.get("ops"), self._last("timings") or {}),
            call_sites=_call_sites(windows.get("sites")),
            counters=_counters(windows.get("counters")),
            code_lines=_code_lines(windows.get("lines")),
            making=_code_lines(self._last("making")),
            thread_rounds=tuple({int(n): float(us) for n, us in r["us"]} for r in self._all("threads")),
            forwards_seen=tuple(_build(model.ForwardsSeen, r) for r in self._all("concurrency")),
            batch_rounds=tuple(_build(model.BatchRound, r) for r in self._all("batching")),
            device=_columns(self._all("device"), records.DEVICE_COLUMNS),
            device_left_out=_totals(r.get("left_out", {}) for r in self._all("device")),
            trials=_build(model.TrialsBegan, trials) if trials else None,
            blocks=self.blocks(),
            applied=tuple(_build(model.Applied, r) for r in self._all("applied")),
            tracked_objects=int(tracked["objects"]) if tracked else None,
            faults=tuple(_build(model.Fault, r) for r in self._all("fault")),
            ended=bool(self._all("end")),
            size_bytes=self._offset,
            problems=tuple(problems),
        )


def _end_times(blocks: Sequence[Record], wall_us: model.Ints) -> model.Ints:
    """When each step ended: back from the block's last boundary by the steps' own lengths."""
    ends, start = [], 0
    for block in blocks:
        stop = start + block["n"]
        walls = wall_us[start:stop]
        ends.append(block["t"] - 1000 * (walls.sum() - np.cumsum(walls)))
        start = stop
    return np.concatenate(ends)


def _column(blocks: Sequence[Record], name: str) -> model.Ints:
    # A column whose entries were all the same was written as one number; one this version lacks is zero.
    return np.concatenate(
        [
            np.full(b["n"], value, np.int64)
            if not isinstance(value := b.get(name, 0), list)
            else np.asarray(value, np.int64)
            for b in blocks
        ]
    )


def _columns(blocks: Sequence[Record], names: Sequence[str]) -> model.Columns:
    if not blocks:
        return model.Columns({name: np.empty(0, np.int64) for name in names})
    return model.Columns({name: _column(blocks, name) for name in names})


def _totals(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _settings(record: Record | None) -> model.Settings | None:
    if record is None:
        return None
    parameters, cuda, libraries = record.get("parameters"), record.get("cuda"), record.get("libraries")
    cudnn = record.get("cudnn")
    return _build(
        model.Settings,
        record,
        parameters=_build(model.Parameters, parameters) if parameters else None,
        gc=_build(model.CollectorState, record.get("gc", {})),
        cuda=_build(model.CudaDevice, cuda) if cuda else None,
        libraries=_build(model.Libraries, libraries) if libraries else None,
        cudnn=_build(model.Cudnn, cudnn) if cudnn else None,
    )


def _sample(record: Record) -> model.Sample:
    cuda = record.get("cuda")
    counters = None
    if cuda is not None:
        counters = model.CudaCounters(
            num_alloc_retries=cuda.get("num_alloc_retries", 0),
            num_device_alloc=cuda.get("num_device_alloc", 0),
            num_device_free=cuda.get("num_device_free", 0),
            num_ooms=cuda.get("num_ooms", 0),
            allocated_peak=cuda.get("allocated_bytes.all.peak", 0),
            reserved_peak=cuda.get("reserved_bytes.all.peak", 0),
            inactive_split=cuda.get("inactive_split_bytes.all.current", 0),
        )
    return _build(model.Sample, record, cuda=counters)


def _ops(record: Record | None, timings: Record) -> model.OpsWindow | None:
    """The operator window, with the timings that were taken of its operators after the last step."""
    if record is None:
        return None
    layers, library = record.get("layers"), record.get("library")
    return _build(
        model.OpsWindow,
        record,
        library=_library(library, timings) if library else None,
        layers=_layers(layers) if layers else None,
        ops=tuple(_build(model.OpRow, r) for r in record.get("ops", ())),
        devices=tuple(_build(model.DeviceWork, r) for r in record.get("devices", ())),
        timed=bool(timings),
        timings=tuple(_build(model.Timing, r) for r in timings.get("timings", ())),
        replay=tuple(_build(model.Replay, r) for r in record.get("replay", ())),
        onednn=tuple(_build(model.LibraryTiming, r) for r in timings.get("onednn", ())),
        layout=tuple(_build(model.LayoutTiming, r) for r in timings.get("layout", ())),
        batch=_batch(timings.get("batch")),
        update=_build(model.UpdateTiming, timings["update"]) if timings.get("update") else None,
    )


def _batch(record: Record | None) -> model.BatchTimings | None:
    if not record:
        return None
    return _build(model.BatchTimings, record, ops=tuple(_build(model.BatchTiming, r) for r in record.get("ops", ())))


def _library(record: Record, timings: Record) -> model.LibraryUse:
    def timed(name: str) -> list[Record]:
        rows, found = record.get(name, ()), timings.get(name, ())
        return [{**row, **timing} for row, timing in zip(rows, found or repeat({}), strict=False)]

    return _build(
        model.LibraryUse,
        record,
        convolutions=tuple(_build(model.ConvolutionRow, r) for r in record.get("convolutions", ())),
        recurrent=tuple(_build(model.RecurrentRow, r) for r in timed("recurrent")),
        attention=tuple(_build(model.AttentionRow, r) for r in timed("attention")),
    )


def _layers(record: Record) -> model.LayersSeen:
    modules = tuple(_build(model.LayerRow, r) for r in record.get("modules", ()))
    return _build(model.LayersSeen, record, modules=modules)


def _call_sites(record: Record | None) -> model.SitesWindow | None:
    if record is None:
        return None
    lines, indices = record.get("lines"), record.get("indices")
    return _build(
        model.SitesWindow,
        record,
        calls=tuple(_build(model.SiteCall, r) for r in record.get("calls", ())),
        lines=None if lines is None else tuple(_build(model.LineRow, r) for r in lines),
        indices=None if indices is None else tuple(_build(model.IndexRow, r) for r in indices),
    )


def _code_lines(record: Record | None) -> model.LinesWindow | None:
    if record is None:
        return None
    return _build(model.LinesWindow, record, lines=tuple(_build(model.CodeRow, r) for r in record.get("lines", ())))


def _counters(record: Record | None) -> model.CountersWindow | None:
    if record is None:
        return None
    # What is not a number is written as null.
    losses = tuple(float("nan") if loss is None else float(loss) for loss in record.get("losses", ()))
    return _build(model.CountersWindow, record, losses=losses)


def read_facts(directory: RunDirectory) -> model.RunFacts:
    """run.json. Raises PerfdoctorError when the directory is not a recording."""
    try:
        record = json.loads(directory.run_file.read_text())
    except (OSError, ValueError) as error:
        raise PerfdoctorError(
            f"{directory.path} is not a perfdoctor recording: "
            f"{'run.json is damaged' if isinstance(error, ValueError) else 'there is no run.json in it'}",
            slug="not-a-recording",
            advice="name a directory that `perfdoctor check` wrote (.perfdoctor/runs/...)",
        ) from error
    schema = re.fullmatch(r"perfdoctor\.run/(\d+)", str(record.get("schema"))) if isinstance(record, dict) else None
    if schema is None:
        raise PerfdoctorError(
            f"{directory.path}/run.json belongs to another program",
            slug="foreign-recording",
            advice="name a directory that `perfdoctor check` wrote (.perfdoctor/runs/...)",
        )
    if int(schema[1]) > records.VERSION:
        raise PerfdoctorError(
            f"{directory.path} was written by a newer perfdoctor ({record['schema']})",
            slug="newer-recording",
            advice="upgrade perfdoctor: pip install --upgrade perfdoctor",
        )
    return _build(model.RunFacts, record)


def read(directory: RunDirectory) -> model.Recording:
    """The whole recording. Raises PerfdoctorError when it is none, or a newer one."""
    facts = read_facts(directory)
    processes = []
    problems = list(facts.problems)
    for path in directory.process_files():
        file = ProcessFile(path)
        try:
            file.refresh()
        except OSError as error:
            problems.append(f"{path.name}: {error.strerror}")
            continue
        process = file.recording()
        if process is None:
            problems.append(f"{path.name}: no complete record")
            continue
        problems.extend(process.problems)
        processes.append(process)
    return model.Recording(
        facts, tuple(processes), tuple(problems), read_cap_timings(directory), read_trial_plan(directory)
    )


def read_trial_plan(directory: RunDirectory) -> model.TrialPlan | None:
    """trials.json; None when there is none, or it is cut: blocks without a plan belong to nothing."""
    try:
        record = json.loads(directory.trials_file.read_text())
        return _build(
            model.TrialPlan, record, trials=tuple(_build(model.PlannedTrial, r) for r in record.get("trials", ()))
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def read_cap_timings(directory: RunDirectory) -> model.CapTimings | None:
    """timings.json; None when there is none, which says that no variable capped the instruction set."""
    try:
        record = json.loads(directory.timings_file.read_text())
        return _build(model.CapTimings, record, ops=tuple(_build(model.CapTiming, r) for r in record.get("ops", ())))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return model.CapTimings(missing=f"{directory.timings_file.name} cannot be read: {error}")
