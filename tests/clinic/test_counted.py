"""The rate of a program that trains on and on."""

from __future__ import annotations

import pytest

from benchmarks.clinic import counted


class LeftError(Exception):
    """In place of the process's end."""


def test_steps_are_counted_from_four_seconds_on_for_twelve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]

    def leave(code: int) -> None:
        raise LeftError(code)

    monkeypatch.setattr(counted.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(counted.os, "_exit", leave)
    counter = counted.Counter()
    with pytest.raises(LeftError):
        while True:
            counter.add()
            now[0] += 2.0 if now[0] < 104 else 0.25  # the first steps are slow
    assert capsys.readouterr().out.split() == ["4.0000", "steps/s"]
    assert now[0] == pytest.approx(116.0)
