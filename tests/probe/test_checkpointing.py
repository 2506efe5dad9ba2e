"""Passes made again with what activation checkpointing computes twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.microbenchmarks import checkpointing, ways
from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes as microbenchmark
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark


class Net(nn.Module):
    """Two blocks that are computed again, or not."""

    def __init__(self, again: bool = True, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant
        torch.manual_seed(0)
        self.again = again
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64)) for _ in range(2))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.block(block, x)
        return x

    def block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        def counted(x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return block(x)

        return checkpoint(counted, x, use_reentrant=self.reentrant) if self.again else counted(x)


def _passes(model: nn.Module) -> PassMicrobenchmark:
    passes = PassMicrobenchmark()
    passes.recomputes = True
    passes.note(model, (torch.randn(256, 64, requires_grad=True),), {})
    passes.keep(1.0)
    return passes


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a pass may take its time."""
    monkeypatch.setattr(ways, "_BESIDE_NS", 1 << 60)


def test_nothing_is_computed_again_and_the_gradients_are_the_same() -> None:
    model, x = Net(), torch.randn(16, 64, requires_grad=True)
    model(x).sum().backward()
    before, calls = [p.grad.clone() for p in model.parameters() if p.grad is not None], model.calls
    assert calls == 4, "twice each"
    model.zero_grad()
    with checkpointing.Kept() as kept:
        model(x).sum().backward()
    assert (model.calls - calls, kept.calls) == (2, 2)
    assert all(torch.equal(one, p.grad) for one, p in zip(before, model.parameters(), strict=True))
    model(x).sum().backward()
    assert model.calls - calls == 6, "as it was"


def test_sequences_of_blocks_are_kept_too() -> None:
    model, x = Net(again=False), torch.randn(16, 64, requires_grad=True)
    with checkpointing.Kept() as kept:
        checkpoint_sequential(list(model.blocks), 2, x, use_reentrant=False).sum().backward()
    assert kept.calls >= 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_passes_are_made_again_without_it(reentrant: bool) -> None:
    """The reentrant kind takes no backward pass for given inputs: there the other kind stands for it."""
    kept: dict[str, Any] = {}
    model = Net(reentrant=reentrant)
    left = ways._without_checkpointing(_passes(model), kept)
    assert left is not None and left > 0
    assert kept["kept_bytes"] > 2 * 256 * 512 * 4, "what tanh makes in both blocks"


def test_without_room_for_it_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    model, kept = Net(), {}
    passes = _passes(model)
    monkeypatch.setattr(microbenchmark.procfs, "available_bytes", lambda: 1 << 20)
    assert ways._without_checkpointing(passes, kept) is None and kept == {}


def test_a_job_that_computes_nothing_again_is_left_alone() -> None:
    once, again = Net(again=False), Net()
    assert ways._without_checkpointing(_passes(once), {}) is None, "layers are called again by something else"
    passes = _passes(again)
    passes.recomputes = False
    assert ways._without_checkpointing(passes, {}) is None


def test_after_the_passes_the_reentrant_kind_is_itself() -> None:
    model, x = Net(reentrant=True), torch.randn(16, 64, requires_grad=True)
    _passes(model).without({})
    with pytest.raises(RuntimeError, match="use_reentrant"):
        torch.autograd.grad(model(x).sum(), x)


def test_a_hook_that_is_part_of_the_model_is_no_obstacle() -> None:
    """As transformers registers it around a model that it checkpoints."""

    def make_inputs_require_grads(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        output.requires_grad_(True)

    def anybodys(module: nn.Module, args: Any, output: torch.Tensor) -> None: ...

    make_inputs_require_grads.__module__ = "transformers.modeling_utils"
    model = Net()
    model.blocks[0].register_forward_hook(make_inputs_require_grads)
    assert "now_ms" in _passes(model).without({})
    model.blocks[0].register_forward_hook(anybodys)
    assert "hooks" in str(_passes(model).without({})["missing"])


@pytest.mark.parametrize("reentrant", [False, True])
def test_as_a_remedy_it_calls_each_block_once_until_it_is_taken_back(reentrant: bool) -> None:
    calls = []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x.sin()

    def gradients() -> list[float]:
        x = torch.arange(4.0, requires_grad=True)
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    remedy = remedies.make("memory.keep-activations", SimpleNamespace())
    expected = gradients()
    assert len(calls) == 2
    remedy.apply()
    assert gradients() == expected and len(calls) == 3
    remedy.withdraw()
    assert gradients() == expected and len(calls) == 5
