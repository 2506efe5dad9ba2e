"""Whose worker a rank is."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe import spark
from perfdoctor.injected._perfdoctor_probe.stop import VARIABLE, engine


@pytest.mark.parametrize(
    ("main", "modules", "expected"),
    [
        ({"__file__": "/x/ray/_private/workers/default_worker.py"}, {"ray": object()}, "Ray"),
        ({"__file__": "/x/default_worker.py"}, {}, ""),
        ({"__file__": "/x/train.py"}, {"ray": object()}, ""),  # the driver
        ({}, {}, ""),  # typed at a prompt
    ],
)
def test_an_engine_is_known_by_its_main_script(
    monkeypatch: pytest.MonkeyPatch, main: dict[str, object], modules: dict[str, object], expected: str
) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(**main))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert engine() == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("pyspark.daemon", "Spark"),  # tasks, and what they start
        ("pyspark.ml.torch.torch_run_process_wrapper", "Spark"),  # ranks, also of a driver in local mode
        ("torch.distributed.run", ""),
        ("", ""),
    ],
)
def test_what_spark_starts_is_marked(monkeypatch: pytest.MonkeyPatch, module: str, expected: str) -> None:
    monkeypatch.setenv(VARIABLE, "")
    spark.mark(module)
    assert engine() == expected
