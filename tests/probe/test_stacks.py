"""Stacks folded into a tree, by hand."""

from __future__ import annotations

import sys
from typing import Any

from perfdoctor.injected._perfdoctor_probe import records
from perfdoctor.injected._perfdoctor_probe.sites import Sites
from perfdoctor.injected._perfdoctor_probe.windows import stacks
from perfdoctor.injected._perfdoctor_probe.windows.stacks import Stacks


class Recorder:
    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def record(self, kind: str, /, **fields: Any) -> None:
        self.records.append((kind, fields))

    def rows(self, kind: str, names: tuple[str, ...]) -> list[tuple[int, ...]]:
        """Of all records of a kind, the columns as rows."""
        found: list[tuple[int, ...]] = []
        for which, fields in self.records:
            if which == kind:
                n = fields["n"]
                found += zip(
                    *[c if isinstance(c := fields[name], (list, tuple)) else [c] * n for name in names], strict=True
                )
        return found


def folded() -> tuple[Stacks, Recorder]:
    recorder = Recorder()
    return Stacks(recorder, Sites(recorder)), recorder


def test_a_stack_that_comes_again_is_written_once() -> None:
    one, recorder = folded()
    for step in (7, 8):
        one.add(step, 2, "", sys._getframe(), 1)
        one.flush()
    rows = recorder.rows("stacks", records.STACK_COLUMNS)
    assert [row[:3] for row in rows] == [(7, 2, 0), (8, 2, 0)]
    assert rows[0][3] == rows[1][3]
    assert len([kind for kind, _ in recorder.records if kind == "nodes"]) == 1


def test_a_recursion_is_cut_and_bounded() -> None:
    one, recorder = folded()

    def dive(depth: int) -> None:
        if depth:
            dive(depth - 1)
        else:
            one.add(1, 0, "", sys._getframe(), 1)

    dive(500)
    one.flush()
    assert len(recorder.rows("nodes", records.NODE_COLUMNS)) <= stacks._DEEPEST


def test_beyond_the_limit_samples_belong_to_the_caller(monkeypatch: Any) -> None:
    monkeypatch.setattr(stacks, "_MOST_NODES", 3)
    one, recorder = folded()
    one.add(1, 0, "", sys._getframe(), 1)
    one.flush()
    assert recorder.rows("stacks", records.STACK_COLUMNS)[0][3] == 2


def test_code_without_a_file_is_told_from_a_librarys() -> None:
    one, recorder = folded()
    exec("one.add(1, 0, '', sys._getframe(), 1)", {"one": one, "sys": sys})
    one.flush()
    node = recorder.rows("stacks", records.STACK_COLUMNS)[0][3]
    assert recorder.rows("nodes", records.NODE_COLUMNS)[node][2] == stacks.TYPED


def test_stacks_are_forgotten_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(stacks, "_MOST_STACKS", 0)
    one, recorder = folded()
    for _ in range(2):
        one.add(1, 0, "", sys._getframe(), 1)
        one.flush()
    assert not one.known and not one.kept
    rows = recorder.rows("stacks", records.STACK_COLUMNS)
    assert rows[0][3] == rows[1][3]
