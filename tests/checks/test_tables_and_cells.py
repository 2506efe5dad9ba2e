"""Embedding tables, and cells and layers that Python calls once per time step."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import in_turn
from ill_runs.network import (
    dense_embedding,
    renormalized_embedding,
    time_loop,
)
from ills import ILL
from perfdoctor.checks.network import CHECK, examine
from samples import ids, number, only, with_

from perfdoctor.diagnosis.findings import Location, Severity
from perfdoctor.evidence.model import (
    Evidence,
    IndexUse,
    Missing,
)
from perfdoctor.recording.timings import UpdateTiming


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def test_rows_that_are_scaled_one_by_one_are_found_at_their_table() -> None:
    finding = only(examine(renormalized_embedding(), CHECK.limits))
    assert finding.id == "PD09.renormalized-embedding"
    assert number(finding, "calls") == 2 and number(finding, "renorm_ms") == pytest.approx(8.0)
    assert "PD09.renormalized-embedding" not in _ids(renormalized_embedding(1.0))


def test_a_dense_embedding_gradient_is_timed_with_its_update() -> None:
    finding = only(examine(ILL["PD09.dense-embedding-gradient"], CHECK.limits))
    assert number(finding, "update_ms") == pytest.approx(1.8, rel=0.05)
    assert number(finding, "gradient_ms") == pytest.approx(4.0)
    assert "sparse=True" in finding.fix.code
    assert finding.location == Location("model.py", 5, "__init__")


def test_a_bag_of_embeddings_has_a_dense_gradient_too() -> None:
    assert _ids(dense_embedding(bag=True)) == ["PD09.dense-embedding-gradient"]


def test_tables_that_cost_too_much_only_together_are_one_finding() -> None:
    assert _ids(dense_embedding(1.8, tables=1)) == ["PD09.dense-embedding-gradient"]
    finding = only(examine(dense_embedding(1.8, tables=3), CHECK.limits))
    assert number(finding, "tables") == 3
    assert number(finding, "dense_ms") == pytest.approx(3.6, rel=0.05)
    assert finding.evidence[0].value == "table0 (Embedding), table1 (Embedding), table2 (Embedding)"
    assert finding.message.startswith("dense gradients of {tables} embedding tables, {layer},")
    assert _ids(dense_embedding(0.5, tables=3)) == []


@pytest.mark.parametrize(("cost", "count"), [(0.5, 0), (0.9, 1)])
def test_a_dense_gradient_counts_from_a_tenth_of_the_step_on(cost: float, count: int) -> None:
    assert len(_ids(dense_embedding(cost))) == count


def test_a_table_that_has_sparse_gradients_is_fine_whatever_others_have() -> None:
    run = dense_embedding(tables=2)
    assert not isinstance(run.layers, Missing)
    tables = [layer for layer in run.layers.layers if layer.kind == "Embedding"]
    others = [layer for layer in run.layers.layers if layer.kind != "Embedding"]
    half = with_(run, layers__layers=(*others, with_(tables[0], sparse=True), tables[1]))
    finding = only(examine(half, CHECK.limits))
    assert finding.evidence[0].value == "table1 (Embedding)" and number(finding, "gradient_ms") == pytest.approx(4.0)
    assert _ids(with_(run, layers__layers=(*others, *(with_(table, sparse=True) for table in tables)))) == []


def test_a_table_that_the_batch_fills_is_fine() -> None:
    assert _ids(dense_embedding(rows=5_000, looked_up=1_000)) == []
    assert _ids(with_(dense_embedding(), ops=Missing("not seen"))) == []


def test_rows_that_a_batch_looks_up_again_and_again_count_once() -> None:
    often = dense_embedding(rows=5_000, looked_up=1_000)
    assert _ids(often) == []
    few = IndexUse("lookup", 5_000, 64, 2_000, 200, 4_990)
    assert _ids(with_(often, index_use=(few,))) == ["PD09.dense-embedding-gradient"]
    assert _ids(with_(often, index_use=(with_(few, distinct=401),))) == []
    assert _ids(with_(often, index_use=(with_(few, width=32),))) == []


@pytest.mark.parametrize(
    ("optimizer", "rows", "told"), [("AdamW", 3_000, 0), ("AdamW", 1_500, 1), ("Adagrad", 7_000, 1)]
)
def test_how_many_rows_may_be_touched_is_by_the_optimizer_that_takes_sparse_ones(
    optimizer: str, rows: int, told: int
) -> None:
    run = dense_embedding(rows=25_000, looked_up=rows, ops__update=UpdateTiming(optimizer, "loop", 4, 2.0))
    found = examine(run, CHECK.limits).findings
    assert len(found) == told
    if found and optimizer == "AdamW":
        gone = dense_embedding(rows=25_000, looked_up=rows // 10)
        assert only(examine(gone, CHECK.limits)).savings.low_ms > found[0].savings.low_ms


@pytest.mark.parametrize(("calls", "count"), [(7.0, 0), (8.0, 1)])
def test_a_cell_is_a_time_loop_from_eight_calls_on(calls: float, count: int) -> None:
    assert _ids(time_loop(calls)) == ["PD09.time-loop"] * count


@pytest.mark.parametrize(
    ("name", "calls", "count"),
    [("cell", 40.0, 0), ("decoder", 40.0, 1), ("", 100.0, 0), ("", 40.0, 1)],
    ids=["itself", "in another module", "in what the loop calls", "in what another loop calls"],
)
def test_a_cell_of_a_module_that_is_called_in_turn_is_told_with_it(name: str, calls: float, count: int) -> None:
    (seen,) = in_turn().ops.in_turn  # type: ignore[union-attr]
    run = with_(time_loop(), ops__in_turn=(with_(seen, name=name, calls_per_step=calls),))
    assert _ids(run).count("PD09.time-loop") == count


def test_a_time_loop_names_the_line_and_the_fused_layer() -> None:
    finding = only(examine(time_loop(kind="GRUCell"), CHECK.limits))
    assert finding.location == Location("model.py", 12, "forward")
    assert "nn.GRU(" in finding.fix.code


@pytest.mark.parametrize(
    ("kind", "low", "high", "severity"),
    [
        ("LSTMCell", 0.3, 0.8, Severity.ERROR),
        ("GRUCell", 0.0, 0.4, Severity.WARNING),
        ("RNNCell", 0.0, 0.4, Severity.WARNING),
    ],
)
def test_only_an_lstm_has_a_fused_kernel_on_a_cpu(kind: str, low: float, high: float, severity: Severity) -> None:
    finding = only(examine(time_loop(kind=kind), CHECK.limits))
    assert finding.savings.low_ms == pytest.approx(low * finding.savings.ceiling_ms)
    assert finding.savings.high_ms == pytest.approx(high * finding.savings.ceiling_ms)
    assert finding.severity is severity
    assert ("no fused kernel" in finding.reasoning) is (kind != "LSTMCell")


def _stepwise(shape: tuple[int, ...], calls: float = 30.0, outer: float = 1.0) -> Evidence:
    """A GRU that is called with inputs of this shape, in a network that is called `outer` times."""
    evidence = time_loop(calls, kind="GRU")
    assert not isinstance(evidence.layers, Missing)
    network = with_(evidence.layers.layers[-1], name="", leaf=False, calls_per_step=outer, weight_shape=())
    layers = tuple(with_(one, input_shape=shape) if one.kind == "GRU" else one for one in evidence.layers.layers)
    return with_(evidence, layers__layers=(*layers, network))


@pytest.mark.parametrize("shape", [(24, 1, 64), (1, 24, 64), (1, 64)])
def test_a_recurrent_layer_that_gets_one_time_step_at_a_time_is_a_time_loop(shape: tuple[int, ...]) -> None:
    finding = only(examine(_stepwise(shape), CHECK.limits))
    assert finding.id == "PD09.time-loop"
    assert "nn.GRU(" in finding.fix.code


@pytest.mark.parametrize(
    ("shape", "calls", "outer"),
    [
        ((24, 32, 64), 30.0, 1.0),  # whole sequences
        ((), 30.0, 1.0),  # packed, or an older recording
        ((24, 1, 64), 7.0, 1.0),
        ((1, 32, 64), 30.0, 30.0),  # batches of one, accumulated
        ((24, 1, 64), 30.0, 30.0),  # an agent that acts one step at a time
    ],
)
def test_a_recurrent_layer_for_whole_sequences_is_none(shape: tuple[int, ...], calls: float, outer: float) -> None:
    assert "PD09.time-loop" not in _ids(_stepwise(shape, calls, outer))
