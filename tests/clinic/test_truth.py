from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clinic import truth
from benchmarks.clinic.truth import Truth


def _on(monkeypatch: pytest.MonkeyPatch, cpu: str) -> None:
    monkeypatch.setattr(truth, "machine", lambda: {"cpu": cpu, "cpus": "2"})


def test_each_machine_keeps_its_own_truths_and_borrows_what_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "STORE", tmp_path)
    twice, thrice = Truth(2.0, 1.9, 2.1, 1.0, 3), Truth(3.0, 2.9, 3.1, 1.0, 3)
    _on(monkeypatch, "AMD EPYC")
    truth.store({"a": twice, "b": twice})
    _on(monkeypatch, "Intel(R) Xeon(R) Processor")
    truth.store({"a": thrice})
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "amd-epyc-2-cpus.json",
        "intel-r-xeon-r-processor-2-cpus.json",
    ]
    assert {name: (one.gain, one.here) for name, one in truth.known().items()} == {"a": (3.0, True), "b": (2.0, False)}
    truth.store({"b": thrice})
    assert all(one == thrice for one in truth.known().values())


def test_a_machine_without_truths_borrows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "STORE", tmp_path)
    assert truth.known() == {}
    _on(monkeypatch, "AMD EPYC")
    truth.store({"a": Truth(2.0, 1.9, 2.1, 1.0, 3)})
    _on(monkeypatch, "another")
    assert [one.here for one in truth.known().values()] == [False]
