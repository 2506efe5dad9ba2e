"""What a rank waits for others, on a clock that only moves when the code under test says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import timeline as parts
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import communication, parallel
from perfdoctor.injected._perfdoctor_probe.hooks.communication import Communication


class Model:
    """As much of DistributedDataParallel as is asked."""

    find_unused_parameters = False

    def __init__(self, syncs: bool = True) -> None:
        self.require_backward_grad_sync = syncs
        self.ready_ns = 0
        self.reducer = SimpleNamespace(get_backward_stats=lambda: [self.ready_ns // 2, self.ready_ns])


class Rank:
    """A training thread that makes steps by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        for module in (parts, communication):
            monkeypatch.setattr(module, "_clock", lambda: self.ns)
        self.loop = SimpleNamespace(timeline=parts.Timeline(), reductions={}, on_training_thread=lambda: True)
        self.calls: list[tuple[str, int]] = []
        counted = SimpleNamespace(add=lambda kind, site, ns: self.calls.append((kind, ns)))
        sites = SimpleNamespace(here=lambda depth: 7)
        self.seen = Communication(SimpleNamespace(), self.loop, counted, sites, Guard(self.failed))
        self.ends = self.seen.post_forward(lambda model, output: output)

    def failed(self, hook: str, error: Exception) -> None:
        raise AssertionError(hook) from error

    def forward(self, model: Model) -> None:
        self.ends(model, torch.ones(1))

    def backward(self, *models: tuple[Model, int], own_ns: int, wait_ns: int) -> None:
        """A pass in which the last gradients of these models are there so long after their forward pass."""
        self.loop.timeline.enter(parts.BACKWARD)
        for model, ready_ns in models:
            model.ready_ns = ready_ns
        self.ns += own_ns + wait_ns
        self.seen.pass_ended()
        self.loop.timeline.leave(parts.BACKWARD)

    def spent(self) -> tuple[int, int]:
        """Backward and communication, ns."""
        return self.loop.timeline.spent[parts.BACKWARD], self.loop.timeline.spent[parts.COMMUNICATION]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(monkeypatch)


def test_what_follows_the_last_gradient_is_waiting(rank: Rank) -> None:
    model = Model()
    rank.forward(model)
    rank.ns += 500  # the loss
    rank.backward((model, 2_500), own_ns=2_000, wait_ns=7_000)
    assert rank.spent() == (2_000, 7_000)
    assert rank.calls == [("dist.gradients", 7_000)]


def test_a_pass_that_reduces_nothing_is_all_the_ranks_own(rank: Rank) -> None:
    model = Model(syncs=False)
    rank.forward(model)
    rank.backward((model, 2_000), own_ns=2_000, wait_ns=100)
    assert rank.spent() == (2_100, 0) and rank.calls == []


def test_a_second_reduction_of_a_step_is_told_apart(rank: Rank) -> None:
    model = Model()
    for ready_ns in (2_000, 2_001):
        rank.forward(model)
        rank.backward((model, ready_ns), own_ns=ready_ns, wait_ns=100)
    rank.loop.timeline.boundary()
    rank.forward(model)
    rank.backward((model, 2_002), own_ns=2_002, wait_ns=100)
    assert [kind for kind, _ in rank.calls] == ["dist.gradients", "dist.gradients_again", "dist.gradients"]


def test_of_two_models_only_the_one_that_the_pass_went_through_counts(rank: Rank) -> None:
    first, second = Model(), Model()
    rank.forward(first)
    rank.forward(second)
    rank.backward((first, 1_000), own_ns=1_000, wait_ns=300)
    second_began = rank.ns
    rank.backward((second, rank.ns + 2_000), own_ns=2_000, wait_ns=400)
    assert second_began == 1_300 and rank.spent() == (3_000, 700)


def test_no_more_is_taken_off_the_pass_than_it_took(rank: Rank) -> None:
    model = Model()
    rank.forward(model)
    rank.ns += 10_000
    rank.backward((model, 1), own_ns=50, wait_ns=50)
    assert rank.spent() == (0, 100)


_TORCHS = """
def barrier(wait, tensor):
    return wait()

def all_reduce(wait, tensor):
    return wait()

def all_gather_object(wait, tensor):
    return barrier(wait, tensor)
"""


@pytest.mark.parametrize(
    ("name", "tensor", "kind"),
    [
        ("barrier", None, "dist.barrier"),
        ("all_gather_object", None, "dist.all_gather_object"),
        ("all_reduce", torch.ones(1), "dist.all_reduce_scalar"),
        ("all_reduce", torch.ones(17), "dist.all_reduce"),
    ],
)
def test_a_collective_is_named_by_the_outermost_function_of_torch(
    rank: Rank, name: str, tensor: torch.Tensor | None, kind: str
) -> None:
    def arrives() -> str:
        rank.ns += 3_000
        return "done"

    functions: dict[str, Callable[..., object]] = {}
    exec(compile(_TORCHS, "/torch/distributed/distributed_c10d.py", "exec"), functions)
    rank.loop.timeline.enter(parts.FORWARD)
    assert functions[name](rank.seen.wait(arrives), tensor) == "done"
    rank.loop.timeline.leave(parts.FORWARD)
    assert rank.calls == [(kind, 3_000)]
    assert rank.loop.timeline.spent[parts.FORWARD] == 0 and rank.spent() == (0, 3_000)


def test_a_collective_between_model_and_backward_pass_does_not_end_the_loss(rank: Rank) -> None:
    line = rank.loop.timeline
    line.stack.append(parts.LOSS)
    rank.ns += 100
    rank.seen.wait(lambda: None)()
    rank.ns += 200
    line.enter(parts.BACKWARD)
    assert line.spent[parts.FORWARD] == 300


def test_a_wait_that_raises_is_left_as_it_was(rank: Rank) -> None:
    def fails() -> None:
        raise RuntimeError("the other rank is gone")

    with pytest.raises(RuntimeError, match="gone"):
        rank.seen.wait(fails)()
    assert rank.loop.timeline.stack == [parts.OTHER]


def test_how_often_a_model_is_reduced_per_step_is_that_of_the_latest_whole_one(rank: Rank) -> None:
    model, passes = Model(), 0
    for count in (2, 3):
        for _ in range(count):
            passes += 1
            rank.forward(model)
            rank.backward((model, passes), own_ns=10, wait_ns=1)
        assert rank.seen.reduced_per_step() == {id(model): {2: 0, 3: 2}[count]}
        rank.loop.timeline.boundary()
        assert rank.seen.reduced_per_step() == {id(model): count}


@pytest.mark.parametrize(
    ("file", "function", "kind"),
    [
        ("/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather_copy_out", "fsdp_all_gather"),
        ("/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "finalize", "fsdp_wait"),
        ("/torch/distributed/pipelining/schedules.py", "_wait_batch_p2p", "pipeline"),
        ("/home/ann/job/train.py", "main", "wait"),
    ],
)
def test_what_torch_itself_waits_for_is_named_by_its_folder(rank: Rank, file: str, function: str, kind: str) -> None:
    functions: dict[str, Callable[..., object]] = {}
    exec(compile(f"def {function}(wait):\n    return wait()\n", file, "exec"), functions)
    functions[function](rank.seen.wait(lambda: None))
    assert rank.calls == [(f"dist.{kind}", 0)]


def test_a_collective_that_sharding_calls_is_named_after_it(rank: Rank) -> None:
    functions: dict[str, Callable[..., object]] = {}
    source = "def reduce_scatter_single(wait):\n    return wait()\n"
    exec(compile(source, "/torch/distributed/distributed_c10d.py", "exec"), functions)
    caller = "def foreach_reduce(send, wait):\n    return send(wait)\n"
    exec(compile(caller, "/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "exec"), functions)
    functions["foreach_reduce"](functions["reduce_scatter_single"], rank.seen.wait(lambda: None))
    assert rank.calls == [("dist.fsdp_reduce_scatter", 0)]


def test_functional_collectives_are_waited_for_under_their_own_name(rank: Rank) -> None:
    rank.seen.wait(lambda: None, "wait_tensor")()
    assert rank.calls == [("dist.wait_tensor", 0)]


@pytest.mark.parametrize(
    ("ranks", "written"),
    [
        ({3}, "3"),
        ({0, 2}, "0,2"),
        ({0, 1, 2, 3}, "0-3"),
        ({1, 3, 5, 7}, "1-7/2"),
        ({0, 1, 4, 5}, "0,1,4,5"),
        (set(range(4_096)), "0-4095"),
    ],
)
def test_ranks_are_written_shortly(ranks: set[int], written: str) -> None:
    assert parallel._written(ranks) == written


def test_a_torch_that_keeps_a_division_elsewhere_costs_only_that_record(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(optimizer: object, model: object) -> dict[str, object]:
        raise AttributeError("mesh_info")

    off: list[str] = []
    monkeypatch.setattr(parallel, "division", changed)
    guarded = Guard(lambda hook, error: off.append(hook))
    seen = Communication(SimpleNamespace(), rank.loop, rank.seen.calls, rank.seen.sites, guarded)
    monkeypatch.setattr(seen, "place", lambda: {"rank": 0})
    rank.loop.timeline.step = 5
    seen.flush(None)
    seen.flush(None)
    assert off == ["division"]
