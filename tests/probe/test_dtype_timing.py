"""What the job's operators would take in another type: which are timed, in which."""

from __future__ import annotations

from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import dtype


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
