"""What the job's operators would take in another type: which are timed, in which."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import dtype, replay
from perfdoctor.injected._perfdoctor_probe.windows import operators


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest operator may take its time."""
    monkeypatch.setattr(dtype, "_LIMIT_NS", 1 << 60)


def timed(monkeypatch: pytest.MonkeyPatch, name: str, kind: str, multiplies_bfloat16: bool) -> list[dict[str, Any]]:
    monkeypatch.setattr(dtype, "native", lambda kind: {"bf16_native": multiplies_bfloat16})
    op = {"name": name, "dtype": kind, "shapes": "[64, 64] [64, 64]"}
    types = [{"float32": "float", "float64": "double"}[kind]] * 2
    return dtype.timings([op], [(f"aten::{name}", [[64, 64], [64, 64]], types, [None, None])])


def test_a_product_in_float32_is_timed_in_bfloat16_where_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = timed(monkeypatch, "mm", "float32", True)
    assert row["milliseconds"] == row["float32_milliseconds"] > 0
    assert row["bfloat16_milliseconds"] > 0 and row["convert_milliseconds"] > 0
    assert timed(monkeypatch, "mm", "float32", False) == []
    assert timed(monkeypatch, "tanh", "float32", True) == []  # autocast leaves it as it is


def test_what_is_not_in_float32_is_timed_in_that(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = timed(monkeypatch, "mm", "float64", True)
    assert row["dtype"] == "float64" and "bfloat16_milliseconds" not in row
    assert row["milliseconds"] > 0 and row["float32_milliseconds"] > 0


def test_a_fourier_transform_is_timed_in_single_precision_too_and_so_is_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dtype, "native", lambda kind: {})
    calls = [
        ("_fft_r2c", "float64", [8, 256], "double", [None, [1], 0, True]),
        ("_fft_c2c", "complex128", [8, 256], "c10::complex<double>", [None, [1], 0, False]),
    ]
    ops = [{"name": name, "dtype": kind, "shapes": str(shape)} for name, kind, shape, *_ in calls]
    arguments = [
        (f"aten::{name}", [shape, [], [], []], [kind, "", "Scalar", "Scalar"], concrete)
        for name, _, shape, kind, concrete in calls
    ]
    rows = dtype.timings(ops, arguments)
    assert [(row["name"], row["dtype"]) for row in rows] == [("_fft_r2c", "float64"), ("_fft_c2c", "float64")]
    assert all(row["float32_milliseconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("name", "kinds", "shapes", "computes_in"),
    [
        ("aten::sub", ["float", "double"], [[32, 24, 1], [64]], "float64"),
        ("aten::mul", ["double", "float"], [[64], [64]], "float64"),
        ("aten::mul", ["float", "double"], [[64], []], "float32"),  # a number takes the tensor's type
        ("aten::mul", ["float", "c10::complex<double>"], [[64], [64]], "complex128"),
        ("aten::add", ["c10::Half", "float"], [[64], [64]], "float16"),
        ("aten::copy_", ["float", "double"], [[64], [64]], "float32"),
        ("aten::_to_copy", ["double"], [[64]], "float64"),
        ("aten::_to_copy", ["double"], [[]], ""),
        ("aten::index", ["long int"], [[64]], ""),
    ],
)
def test_an_operator_computes_in_the_type_of_its_widest_tensor(
    name: str, kinds: list[str], shapes: list[list[int]], computes_in: str
) -> None:
    assert operators._type(name, kinds, shapes) == computes_in


def test_tensors_of_two_types_are_timed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, prepared = [], replay.prepared

    def noted(name: str, shapes: Any, types: Any, concrete: Any, kind: Any = None) -> Any:
        asked.append((types, kind))
        return prepared(name, shapes, types, concrete, kind)

    monkeypatch.setattr(replay, "prepared", noted)
    monkeypatch.setattr(dtype, "native", lambda kind: {})
    op = {"name": "sub", "dtype": "float64", "shapes": "[512, 1] [64]"}
    types = ["float", "double", "Scalar"]
    (row,) = dtype.timings([op], [("aten::sub", [[512, 1], [64], []], types, [None, None, 1])])
    assert row["dtype"] == "float64" and asked == [(types, None), (types, torch.float32)]
