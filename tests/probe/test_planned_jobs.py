"""What the anatomy of the job is made of: imports, evaluations, what prints and logs."""

from __future__ import annotations

import builtins
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import process, timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks.calls import Calls
from perfdoctor.injected._perfdoctor_probe.hooks.decoding import Decoding
from perfdoctor.injected._perfdoctor_probe.hooks.evaluation import Evaluation
from perfdoctor.injected._perfdoctor_probe.hooks.loggers import Loggers
from perfdoctor.injected._perfdoctor_probe.imports import Imports


class Loop:
    """A training thread with a timeline."""

    def __init__(self) -> None:
        self.timeline = timeline.Timeline()
        self.forward_began_ns = 0
        self.here = True

    def on_training_thread(self) -> bool:
        return self.here


class Bench:
    def __init__(self) -> None:
        self.loop = Loop()
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.faults: list[str] = []
        recorder = SimpleNamespace(record=lambda kind, /, **fields: self.records.append((kind, fields)))
        sites = SimpleNamespace(here=lambda depth=1: 7, is_library=lambda file: False, at=lambda code, line: 7)
        guard = Guard(lambda hook, error: self.faults.append(hook))
        self.calls = Calls(recorder, self.loop, sites, guard)
        self.loggers = Loggers(self.calls)
        self.loading = SimpleNamespace(rows=[])
        self.held_out: set[str] = set()
        """Names that stand for tensors of earlier steps."""
        met = SimpleNamespace(met=lambda module, arguments, step: arguments[0] in self.held_out)
        self.evaluation = Evaluation(recorder, sites, self.loop, self.loading, met, Decoding(recorder, sites))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.loggers.forget()
    assert bench.faults == []


# ---------------------------------------------------------------------------------------------------------
# Logging


def test_what_prints_and_logs_is_timed_by_line_and_says_the_same(
    bench: Bench, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    original = builtins.print
    bench.loggers.look()
    print("said", 1, sep="-")
    with caplog.at_level(logging.INFO):
        logging.getLogger("job").info("logged")
    assert capsys.readouterr().out == "said-1\n"
    # Who logs is looked up on the stack, and none of our frames may lie between.
    assert caplog.records[0].funcName == "test_what_prints_and_logs_is_timed_by_line_and_says_the_same"
    assert {key: total[0] for key, total in bench.calls.totals.items()} == {("log:print", 7): 1, ("log:logging", 7): 1}
    assert bench.loop.timeline.spent[timeline.LOGGING] > 0
    bench.loggers.forget()
    assert builtins.print is original


def test_a_figure_and_a_picture_that_are_saved_are_logging_with_what_saving_them_draws(
    bench: Bench, tmp_path: Path
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(1, 1))
    image = pytest.importorskip("PIL.Image").new("L", (4, 4))
    bench.loggers.look()
    figure.add_subplot().plot([1, 2])
    figure.savefig(tmp_path / "curve.png")
    image.save(tmp_path / "sample.png")
    counts = {key: total[0] for key, total in bench.calls.totals.items()}
    assert counts == {("log:Figure.savefig", 7): 1, ("log:Image.save", 7): 1}
    assert (tmp_path / "curve.png").stat().st_size > (tmp_path / "sample.png").stat().st_size > 0


def test_a_call_inside_another_counts_as_a_part_of_it(bench: Bench) -> None:
    bench.loggers.look()
    inner = bench.calls.wrap("log:inner", lambda: None, timeline.LOGGING, bench.calls.began_in_loop)
    bench.calls.wrap("log:outer", inner, timeline.LOGGING, bench.calls.began_in_loop)()
    assert list(bench.calls.totals) == [("log:outer", 7)]
    assert bench.loop.timeline.stack == [timeline.OTHER]


def test_other_threads_may_print_as_they_like(bench: Bench) -> None:
    bench.loop.here = False
    bench.calls.wrap("log:print", lambda: None, timeline.LOGGING, bench.calls.began_in_loop)()
    assert bench.calls.totals == {}
    assert bench.loop.timeline.spent[timeline.LOGGING] == 0


def test_a_library_is_changed_once_it_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.loggers.look()
    writer = type("SummaryWriter", (), {"add_scalar": lambda self, name, value: value, "close": lambda self: None})
    before = writer.add_scalar, writer.close
    monkeypatch.setitem(sys.modules, "tensorboardX.writer", SimpleNamespace(SummaryWriter=writer))  # type: ignore[arg-type]
    bench.loggers.look()
    assert writer().add_scalar("loss", 3.0) == 3.0
    assert ("log:add_scalar", 7) in bench.calls.totals
    assert writer.close is before[1]
    bench.loggers.forget()
    assert writer.add_scalar is before[0]


def test_what_a_trainer_keeps_of_an_evaluations_outputs_is_timed_and_counted(bench: Bench) -> None:
    module = pytest.importorskip("transformers.trainer_pt_utils")
    bench.loggers.look()
    kept = module.EvalLoopContainer()
    for _ in range(3):
        kept.add((torch.ones(4, 100), torch.ones(4, 10)))
    assert kept.get_arrays()[0].shape == (12, 100)
    calls, _, size = bench.calls.totals["collected", 7]
    assert (calls, size) == (4, 3 * 4 * 110 * 4)
    assert bench.loop.timeline.stack == [timeline.OTHER]


def test_what_lightning_logs_is_told_by_its_own_name(bench: Bench) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    before = vars(lightning.LightningModule)["log"]
    bench.loggers.look()
    with pytest.warns(UserWarning, match="trainer"):
        lightning.LightningModule().log("loss", 1.0)  # outside of any: it is called as before
    assert bench.calls.totals["log:self.log", 7][0] == 1
    bench.loggers.forget()
    assert vars(lightning.LightningModule)["log"] is before


def test_what_wandb_is_given_takes_time_to_make(bench: Bench) -> None:
    wandb = pytest.importorskip("wandb")
    before = wandb.Histogram.__init__
    bench.loggers.look()
    assert wandb.Histogram([1.0, 2.0, 2.0], num_bins=2).histogram == [1, 2]
    assert bench.calls.totals["log:wandb.Histogram", 7][0] == 1
    bench.loggers.forget()
    assert wandb.Histogram.__init__ is before


def test_an_mlflow_client_is_timed_as_mlflow_is(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    bench.loggers.look()
    client = mlflow.MlflowClient(f"file:{tmp_path}")
    run = client.create_run(client.create_experiment("clinic")).info.run_id
    client.log_batch(run, metrics=[mlflow.entities.Metric("loss", 3.0, 0, 1)])
    client.log_metric(run, "loss", 2.0, step=2)
    counted = {kind: count for (kind, _), (count, *_) in bench.calls.totals.items() if kind.startswith("log:log_")}
    assert counted == {"log:log_batch": 1, "log:log_metric": 1}
    assert [metric.value for metric in client.get_metric_history(run, "loss")] == [3.0, 2.0]


def test_printing_a_loss_does_not_end_it() -> None:
    line = timeline.Timeline()
    line.stack.append(timeline.LOSS)
    line.enter(timeline.LOGGING)
    line.leave(timeline.LOGGING)
    assert line.stack == [timeline.OTHER, timeline.LOSS]


# ---------------------------------------------------------------------------------------------------------
# Evaluation


ACTING, SCORING = SimpleNamespace(training=True), SimpleNamespace(training=False)


def _evaluate(bench: Bench, forwards: int, data: Any = "", took_ns: int = 1_000, module: Any = ACTING) -> None:
    for _ in range(forwards):
        bench.loop.forward_began_ns = bench.loop.timeline.enter(timeline.FORWARD)
        bench.loop.timeline.leave(timeline.FORWARD)
        bench.evaluation.forward_ended(took_ns, module, (data,), f"scores of {data}")


def _rows(bench: Bench) -> list[list[int]]:
    return [list(row[:6]) for row in bench.evaluation.rows]


def test_an_evaluation_lasts_from_its_iterator_to_its_last_forward_pass(bench: Bench) -> None:
    line = bench.loop.timeline
    line.enter(timeline.INPUT)
    bench.evaluation.iterator_wanted()
    began = line.mark
    bench.loading.rows = [(5, 0)]
    _evaluate(bench, 3)
    assert _rows(bench) == [[0, line.mark - began, 3, 3_000, 5, 0]]


def test_without_an_iterator_it_lasts_from_the_steps_beginning(bench: Bench) -> None:
    line = bench.loop.timeline
    line.boundary()
    _evaluate(bench, 2)
    assert _rows(bench) == [[1, line.mark - line.boundary_ns, 2, 2_000, -1, 0]]


@pytest.mark.parametrize(("module", "counted"), [(SCORING, (9, 27)), (ACTING, (0, 0))], ids=["scores", "acts"])
def test_many_passes_in_evaluation_mode_are_told_with_their_samples_and_the_line_outside_of_modules(
    bench: Bench, module: Any, counted: tuple[int, int]
) -> None:
    bench.loop.timeline.boundary()
    _evaluate(bench, 9, torch.zeros(3, 5), module=module)
    assert tuple(bench.evaluation.rows[0][6:]) == counted
    told = [fields for kind, fields in bench.records if kind == "evaluated"]
    assert told == [{"site": 7}] * bool(counted[0]), "once"


def test_passes_on_batches_of_a_loader_have_that_for_a_line(bench: Bench) -> None:
    bench.loading.rows = [(5, 0)]
    _evaluate(bench, 9, torch.zeros(3, 5), module=SCORING)
    assert bench.evaluation.rows[0][4:] == [5, 0, 0, 0] and bench.records == []


def test_passes_while_torchscript_traces_are_not_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is a tensor then, and who adds to it adds an operator to what is traced."""
    monkeypatch.setattr(torch._C, "_get_tracing_state", object)
    _evaluate(bench, 9, torch.zeros(3, 5), module=SCORING)
    assert bench.evaluation.rows[0][4:] == [-1, 0, 0, 0] and bench.records == []


def test_a_checkpoint_in_the_middle_is_none_of_it(bench: Bench) -> None:
    line = bench.loop.timeline
    line.boundary()
    _evaluate(bench, 1)
    line.enter(timeline.CHECKPOINT)
    line.leave(timeline.CHECKPOINT)
    _evaluate(bench, 1)
    assert _rows(bench)[0][1] == line.mark - line.boundary_ns - line.spent[timeline.CHECKPOINT]


def test_each_step_has_a_row_of_its_own(bench: Bench) -> None:
    _evaluate(bench, 1)
    bench.loop.timeline.boundary()
    _evaluate(bench, 2)
    bench.evaluation.flush()
    ((kind, record),) = bench.records
    assert kind == "evaluations" and record["step"] == (0, 1) and record["forwards"] == (1, 2)
    assert bench.evaluation.rows == []


_LONG_NS = 200_000


def test_passes_on_held_out_data_have_a_row_of_their_own_and_no_loader(bench: Bench) -> None:
    line, told = bench.loop.timeline, []
    bench.held_out = {"x_val"}
    bench.evaluation.on_scores = lambda arguments, output: told.append((arguments, output))
    line.boundary()
    bench.loading.rows = [(5, 1)]
    _evaluate(bench, 1, "batch", _LONG_NS)
    _evaluate(bench, 2, "x_val", _LONG_NS)
    other, held_out = _rows(bench)
    assert (other[2], other[4:]) == (1, [5, 0])
    assert (held_out[2], held_out[3], held_out[4:]) == (2, 2 * _LONG_NS, [-1, 1])
    assert told == [(("x_val",), "scores of x_val")] * 2


def test_what_is_trained_between_two_such_passes_is_none_of_it(bench: Bench) -> None:
    line = bench.loop.timeline
    bench.held_out = {"x_val"}
    _evaluate(bench, 1, "x_val", _LONG_NS)
    line.enter(timeline.BACKWARD)
    line.leave(timeline.BACKWARD)
    _evaluate(bench, 1, "x_val", _LONG_NS)
    ((_, us, *_),) = _rows(bench)
    assert us == 2 * _LONG_NS


@pytest.mark.parametrize(("before", "took_ns"), [(0, 99_000), (2, _LONG_NS)], ids=["short", "of an agent that acts"])
def test_not_every_pass_is_looked_at(bench: Bench, before: int, took_ns: int) -> None:
    bench.held_out = {"x_val"}
    _evaluate(bench, before, "batch", _LONG_NS)
    _evaluate(bench, 1, "x_val", took_ns)
    (row,) = _rows(bench)
    assert row[-1] == 0 and row[2] == before + 1


# ---------------------------------------------------------------------------------------------------------
# Before the loop


def test_the_outermost_import_is_timed_and_fails_as_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outer_module.py").write_text("import inner_module\n")
    (tmp_path / "inner_module.py").write_text("import time\ntime.sleep(0.01)\n")
    monkeypatch.syspath_prepend(tmp_path)
    system = sys.modules["_frozen_importlib"]
    before, imports = system._find_and_load, Imports()  # type: ignore[attr-defined]
    imports.watch()
    try:
        importlib.import_module("outer_module")
        with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere_to_be_found'") as raised:
            import nowhere_to_be_found  # type: ignore[import-not-found]  # noqa: F401
    finally:
        imports.stop()
    assert system._find_and_load is before  # type: ignore[attr-defined]
    assert imports.ns >= 10_000_000
    assert len(raised.traceback) == 1, "Python leaves the frames of its import system out"


def test_the_kernel_knows_when_this_process_began() -> None:
    now = 1 << 62
    assert 0 < now - process._start_ns(now) < 24 * 3600 * 1_000_000_000
