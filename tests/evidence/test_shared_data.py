"""Data sets that every rank goes through, all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import batches, loader, recorded, settings, steps, torch

from perfdoctor.evidence import communication
from perfdoctor.evidence.model import Missing, SharedData

N = 101


def _rank(rank: int, asked: Sequence[dict[str, Any]], division: Sequence[dict[str, Any]] = ()) -> list[Any]:
    """Draws from loader 1; loader 2 evaluates."""
    environment = {"RANK": str(rank), "WORLD_SIZE": "2"}
    told = [torch(environment=environment), settings(environment=environment), *division]
    made = [loader(1, length=6000), loader(2, length=500)]
    return [*told, *made, steps([9_000] * N, communication_us=[500] * N), batches(range(N), [10] * N), *asked]


def _asked(held: str, of: int = 1) -> dict[str, Any]:
    return {"k": "samples", "loader": of, "same": True, "bytes": 40, "held": held}


def _seen(directory: Path, *ranks: list[Any]) -> SharedData | None:
    built = communication.build([recorded(directory, *records, pid=100 + i) for i, records in enumerate(ranks)])
    assert not isinstance(built, Missing), built
    return built.shared_data


def test_two_samples_that_are_the_same_on_all_ranks_tell(tmp_path: Path) -> None:
    seen = _seen(tmp_path, _rank(0, [_asked("ab-cd")]), _rank(1, [_asked("ab-cd")]))
    assert seen is not None and seen.samples == 6000


@pytest.mark.parametrize(
    "asked",
    [
        ([_asked("ab-cd")], [_asked("ef-01")]),
        ([_asked("")], [_asked("")]),
        ([_asked("ab-cd")], []),
        ([_asked("ab-cd", of=2)], [_asked("ab-cd", of=2)]),
    ],
    ids=["parts of their own", "not known", "not asked", "only evaluated"],
)
def test_else_nothing_is_said(tmp_path: Path, asked: tuple[Sequence[dict[str, Any]], ...]) -> None:
    assert _seen(tmp_path, *(_rank(rank, one) for rank, one in enumerate(asked))) is None


def test_parts_of_one_layer_need_the_same_data(tmp_path: Path) -> None:
    parts = [{"k": "division", "tensor": "0-1"}]
    assert _seen(tmp_path, *(_rank(rank, [_asked("ab-cd")], parts) for rank in (0, 1))) is None
