"""What the job's operators would take in another type: which are timed, in which."""

from __future__ import annotations

from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import dtype


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
