"""Whose worker a rank is."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.stop import engine


@pytest.mark.parametrize(
    ("main", "modules", "expected"),
    [
        ({"__file__": "/x/ray/_private/workers/default_worker.py"}, {"ray": object()}, "Ray"),
        ({"__file__": "/x/default_worker.py"}, {}, ""),
        ({"__file__": "/x/train.py"}, {"ray": object()}, ""),  # the driver
        ({"__file__": "/tmp/a/train.py", "cloudpickle": SimpleNamespace(__name__="pyspark.cloudpickle")}, {}, "Spark"),
        ({"__file__": "/tmp/a/train.py", "cloudpickle": SimpleNamespace(__name__="cloudpickle")}, {}, ""),
        ({"__file__": "/tmp/a/train.py"}, {}, ""),
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
