"""An LSTM that ran natively, replayed with oneDNN off and on; on packed sequences, as those and padded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import recurrent, replay
from perfdoctor.injected._perfdoctor_probe.windows.layers import Title

HOW = [True, 1, 0.0, True, False, True]
PACKED = [None, True, 1, 0.0, True, False]


def _replay(us: int, batch_sizes: list[int] | None = None, **changes: Any) -> dict[str, Any] | None:
    """Of a call that took so long, forward and backward together."""
    facts = {"kernel": "aten::lstm", "dtype": "float32", "input": [4, 6, 3], "how": HOW, **changes}
    kind = SimpleNamespace(facts=facts, calls=2, spent=[1000 * us, 1000 * us])
    sizes = None if batch_sizes is None else torch.tensor(batch_sizes)
    return recurrent.replay_of(kind, Title(module=nn.LSTM(3, 5, batch_first=True), packed=sizes))


@pytest.mark.parametrize(("us", "places"), [(149_000, replay.PLACES), (151_000, 1), (299_000, 1)])
def test_a_long_call_is_replayed_in_one_place_only(us: int, places: int) -> None:
    replay = _replay(us)
    assert replay is not None and replay["places"] == places


@pytest.mark.parametrize(
    ("us", "changes"), [(301_000, {}), (100, {"kernel": "aten::mkldnn_rnn_layer"}), (100, {"dtype": "float64"})]
)
def test_what_is_too_long_or_not_for_onednn_is_not_replayed(us: int, changes: dict[str, Any]) -> None:
    assert _replay(us, **changes) is None


def test_each_layer_has_its_timings_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    on, replay = torch._C._get_mkldnn_enabled(), _replay(100)
    monkeypatch.setattr(recurrent, "_LIMIT_NS", 1 << 60)
    rows = [{"layer": name} for name in "abc"]
    first, none, second = recurrent.timed(rows, [replay, None, replay])
    assert min(first["native_ms"], first["onednn_ms"], second["native_ms"]) > 0 and none == {"layer": "b"}
    assert (first["layer"], second["layer"]) == ("a", "c")
    monkeypatch.setattr(recurrent, "_LIMIT_NS", 0)
    assert recurrent.timed(rows, [replay] * 3) == rows
    assert torch._C._get_mkldnn_enabled() == on


def test_packed_sequences_are_replayed_on_as_many_steps_of_time_and_padded() -> None:
    one = _replay(100, [4, 3, 1], input=[8, 3], how=PACKED)
    assert one is not None and one["input"] == [3, 4, 3]
    (found,) = recurrent.timed([{}], [one])
    assert min(found["packed_ms"], found["padded_ms"]) > 0 and found.keys() == {"packed_ms", "padded_ms"}


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        (None, PACKED),
        ([4, 3], PACKED),
        ([8] + [1] * 35, PACKED),
        ([4, 3, 1], [*PACKED[:-1], True]),
    ],
    ids=["unknown", "of another call", "mostly padding", "both directions"],
)
def test_packed_sequences_that_padded_ones_are_not_known_to_stand_for_are_not_replayed(
    sizes: list[int] | None, how: list[Any]
) -> None:
    assert _replay(100, sizes, input=[43 if sizes and len(sizes) > 3 else 8, 3], how=how) is None
