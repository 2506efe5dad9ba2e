"""Distributed checkpoints of two ranks: the wait of each, the line, the bytes and what is synced to disk."""

from __future__ import annotations

import sys

import pytest
from observing import Observer, line_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(450)]


def test_each_rank_waits_for_its_saves_and_only_for_the_start_of_those_in_the_background(observe: Observer) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words = [*launcher, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "sharded.py"]
    seen = observe("", command=words)
    assert seen.probed.stdout == seen.bare.stdout
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()
    assert [process.rank for process in seen.ranks] == [0, 1]
    for process in seen.ranks:
        saves = [call for call in process.calls if call.kind == "save"]
        at_once = [call for call in saves if line_of(call.site).startswith("checkpoint.save(")]
        later = [call for call in saves if line_of(call.site).startswith("under_way = checkpoint.async_save(")]
        assert at_once and later and all(call.bytes > 1_000 for call in at_once)
        assert (process.steps["checkpoint_us"] > 0).any()
        assert any(call.kind == "fsync" for call in process.calls)
