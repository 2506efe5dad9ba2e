"""An update after a backward pass is seen, by whatever means it was made, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.hooks.updates import Updates

Update = Callable[[torch.Tensor], None]


def parameter() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def backward(updates: Updates, loss: torch.Tensor) -> None:
    assert updates.pass_began(((loss,), (None,), False, False, ()), True)
    loss.backward()  # type: ignore[no-untyped-call]
    updates.pass_ended()


def in_place(p: torch.Tensor) -> None:
    with torch.no_grad():
        p -= 0.1


def of_lists(p: torch.Tensor) -> None:
    with torch.no_grad():
        torch._foreach_add_([p], 0.1)


def new_data(p: torch.Tensor) -> None:
    p.data = p.data - 0.1


def through_data(p: torch.Tensor) -> None:
    p.data.sub_(0.1)


def gradient_gone(p: torch.Tensor) -> None:
    p.grad = None


def gradient_zeroed(p: torch.Tensor) -> None:
    assert p.grad is not None
    p.grad.zero_()


@pytest.mark.parametrize(
    ("update", "seen"),
    [
        (in_place, True),
        (of_lists, True),
        (new_data, True),
        (gradient_gone, False),
        (gradient_zeroed, False),
        (through_data, None),
    ],
)
def test_an_update_is_seen_in_the_parameter_or_in_its_gradient(update: Update, seen: bool | None) -> None:
    updates, p = Updates(), parameter()
    backward(updates, (2 * p).sum())
    assert updates.look() is None
    update(p)
    assert updates.look() is seen


def test_passes_that_accumulate_are_one_step() -> None:
    updates, p, through = Updates(), parameter(), 3
    for _ in range(4):
        for _ in range(through):
            backward(updates, (2 * p).sum())
            assert updates.look() is None
        in_place(p)
        assert updates.look() is True
    assert updates.usual == through


def test_what_is_never_seen_to_change_is_a_step_a_pass() -> None:
    updates, p = Updates(), parameter()
    seen = []
    for _ in range(10):
        backward(updates, (2 * p).sum())
        through_data(p)
        assert p.grad is not None
        p.grad.data.zero_()
        seen.append(updates.look())
    assert seen == [None] * 7 + [False] * 3


def test_functional_code_lets_go_of_the_parameter() -> None:
    updates, begun = Updates(), []
    original: Any = torch.autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        begun.append(updates.pass_began(args, kwargs["accumulate_grad"]))
        return original(*args, **kwargs)

    p = torch.ones(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.autograd, "_engine_run_backward", run)
        grad = torch.func.grad(lambda p: (p**2).sum())(p)
    updates.pass_ended()
    assert begun == [True]
    p = p - 0.1 * grad
    assert updates.look() is True


def test_a_derivative_on_the_way_to_a_loss_is_no_step() -> None:
    updates, x = Updates(), parameter()
    keeps_graph = (x.sum(),), (None,), True, True, (x,), False
    assert not updates.pass_began(keeps_graph, False)
    backward(updates, (2 * x).sum())
    assert not updates.pass_began(((x.sum(),), (None,), False, False, (x,)), False)


def test_nothing_ends_in_inference_mode() -> None:
    updates, p = Updates(), parameter()
    backward(updates, (2 * p).sum())
    in_place(p)
    with torch.inference_mode():
        assert updates.look() is None
    assert updates.look() is True


def test_the_leaf_is_found_behind_operators_that_have_none() -> None:
    updates, p = Updates(), parameter()
    backward(updates, (2 * p).relu().exp().sum())
    assert updates.leaf() is p


def test_a_mode_of_the_job_sees_nothing_of_it() -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    updates, p = Updates(), parameter()
    loss = (2 * p).sum()
    with Counting():
        updates.pass_began(((loss,), (None,), False, False, ()), True)
        updates.pass_ended()
        updates.look()
    assert Counting.calls == 0


@pytest.mark.parametrize("batched", [True, False])
def test_gradients_of_single_samples_are_of_parameters_with_a_storage(batched: bool) -> None:
    """As in `vmap(grad(loss))`: what `vmap` batches has none to look at."""
    updates, seen = Updates(), []

    def gradient(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def loss(p: torch.Tensor) -> torch.Tensor:
            assert updates.pass_began((((p * x).sum(),), (None,), False, False, (p,)), False)
            updates.pass_ended()
            seen.append(updates.leaf())
            return (p * x).sum()

        return torch.func.grad(loss)(p)

    p = torch.ones(4, 3) if batched else torch.ones(3)
    torch.func.vmap(gradient, in_dims=(0 if batched else None, 0))(p, torch.ones(4, 3))
    assert seen[0] is p


def returned(updates: Updates, p: torch.Tensor) -> None:
    """A pass that adds to no `.grad`."""
    loss = (2 * p).sum()
    assert updates.pass_began(((loss,), (None,), False, False, (p,)), False)
    updates.pass_ended()


def groups(updates: Updates, sizes: list[int], keeping: list[torch.Tensor]) -> list[list[bool | None]]:
    """What is seen after each pass, where functional code has a new parameter after so many, and somebody keeps the
    old ones if there is a list for them."""
    seen = []
    for size in sizes:
        p = parameter()
        keeping[:] = [*keeping, p] if keeping else []
        seen.append([])
        for _ in range(size):
            returned(updates, p)
            if size - len(seen[-1]) == 1:
                del p
            seen[-1].append(updates.look())
    return seen


def test_gradients_taken_one_by_one_are_one_step_once_updates_come_at_equal_distances() -> None:
    updates, through = Updates(), 12
    first, second, third, later = groups(updates, [through] * 4, [])
    # Each may have been followed by an update that nobody sees.
    assert first == second == [*third[:-1], first[-1]] == [False] * (through - 1) + [True]
    assert updates.usual == through
    assert later == [None] * (through - 1) + [True]


def test_a_group_ends_where_somebody_keeps_the_old_parameter() -> None:
    updates, through = Updates(), 12
    groups(updates, [through] * 3, [])
    for group in groups(updates, [through] * 4, [parameter()]):
        assert group == [None] * (through - 1) + [False]


@pytest.mark.parametrize("sizes", [[12, 13, 12, 13, 12, 13], [600] * 4, [12, 12]])
def test_other_distances_tell_nothing(sizes: list[int]) -> None:
    updates = Updates()
    for group in groups(updates, sizes, []):
        assert None not in group and not updates.regrouped
    assert updates.usual == 1
