"""The job's own forward and backward are run again with repeated inputs, and the job is as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import inputs, passes, replay, ways
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)


class Eventful(nn.Module):
    """Changes everything that a forward pass may change."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.plain, self.generator = torch.zeros(2), torch.Generator()
        self.calls, self.sizes, self.known = 0, [1], {"last": 0}
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        self.calls += 1
        self.sizes.append(len(images))
        self.known["last"] = self.known["new"] = len(images)
        self.plain += random.random() + np.random.rand()
        self.seen = torch.rand(1, generator=self.generator)
        return {"found": scale * self.dropout(self.norm(self.convolution(images)))}


def _noted(module: nn.Module, *args: Any, **named: Any) -> PassMicrobenchmark:
    found = PassMicrobenchmark()
    found.note(module, args, named)
    found.keep(1.0)
    return found


def _state(model: Eventful) -> list[Any]:
    tensors = (*model.parameters(), *model.buffers(), model.plain, *(p.grad for p in model.parameters()))
    numbers = model.calls, list(model.sizes), dict(model.known), hasattr(model, "seen"), random.getstate()
    generated = model.generator.get_state().tolist(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    return [[(id(t), t.tolist()) for t in tensors if t is not None], numbers, generated]


def test_a_pass_is_timed_by_how_often_its_inputs_are_repeated_and_leaves_no_trace() -> None:
    model = Eventful()
    model(torch.randn(1, 3, 8, 8))["found"].sum().backward()
    del model.seen
    before, gradients = _state(model), [p.grad for p in model.parameters()]
    found = _noted(model, torch.randn(1, 3, 8, 8), scale=2.0).timings()
    assert _state(model) == before and all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert found["batch"] == 1
    assert [factor for factor, _ in found["times"]] == [1, 2, 4] and all(ms > 0 for _, ms in found["times"])


def test_a_module_that_fails_with_another_batch_is_as_it_was() -> None:
    class Fixed(Eventful):
        def forward(self, images: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
            return super().forward(images.view(2, 3, 8, 8), scale=scale)

    model = Fixed()
    before = _state(model)
    assert "RuntimeError" in _noted(model, torch.randn(2, 3, 8, 8)).timings()["missing"]
    assert _state(model) == before


@pytest.mark.parametrize(
    ("shapes", "batch"),
    [
        ([(8, 3), (8,)], (8, False)),
        ([(8, 3), (1, 5), ()], (8, False)),
        ([(1, 5), (1, 3)], (1, False)),
        ([(4,)], (1, True)),
    ],
)
def test_the_batch_is_the_common_first_dimension(shapes: list[tuple[int, ...]], batch: tuple[int, bool]) -> None:
    assert inputs.batch_of([torch.zeros(shape) for shape in shapes]) == batch


def test_numbers_to_look_up_are_a_batch_of_one_dimension() -> None:
    assert inputs.batch_of([torch.zeros(8, dtype=torch.long)] * 2) == (8, False)


@pytest.mark.parametrize(
    "beside",
    [torch.arange(40), torch.arange(8).flip(0), torch.linspace(0.0, 1.0, 40)],
    ids=["places", "classes", "grid"],
)
def test_what_else_a_batch_is_given_leaves_it_one(beside: torch.Tensor) -> None:
    assert inputs.batch_of([torch.zeros(8, 3), beside]) == (8, False)


def test_rows_that_are_picked_by_a_list_beside_them_are_no_batch() -> None:
    edges = torch.arange(40).flip(0) % 8
    with pytest.raises(inputs.NotRepeatableError, match="edges"):
        inputs.batch_of([torch.zeros(8, 3), edges])


def test_one_sample_without_a_batch_is_given_one() -> None:
    seen: list[tuple[int, ...]] = []

    class Policy(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.append(tuple(input.shape))
            return super().forward(input)

    policy = Policy(4, 2)
    assert _noted(policy, torch.randn(4)).timings()["batch"] == 1
    assert set(seen) == {(4,), (2, 4), (4, 4)}


def _hooked() -> nn.Module:
    module = nn.Linear(4, 2)
    module.register_forward_hook(lambda *_: None)
    return module


def _watched() -> nn.Module:
    module = nn.Linear(4, 2)
    module.weight.register_hook(lambda gradient: gradient)
    return module


@pytest.mark.parametrize(
    ("make", "inputs", "why"),
    [
        (_hooked, [torch.ones(2, 4)], "hooks"),
        (_watched, [torch.ones(2, 4)], "hooks"),
        (lambda: nn.Linear(4, 2), [torch.ones(2, 4), torch.ones(3, 4)], "first dimension"),
        (lambda: nn.Linear(4, 2), [], "first dimension"),
        (lambda: nn.Linear(4, 2), [torch.ones(2, 4), object()], "an input is a object"),
        (lambda: nn.Linear(4, 2), [torch.ones(2, 4).to_sparse()], "no plain tensor"),
        (nn.ReLU, [torch.ones(2, 4)], "no call"),
    ],
)
def test_what_cannot_be_run_again_says_why(make: Callable[[], nn.Module], inputs: list[Any], why: str) -> None:
    module = make()
    assert why in _noted(module, *inputs).timings()["missing"]


def test_a_large_module_is_not_kept_from_going(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _noted(nn.Linear(4, 2), torch.ones(2, 4)).timings()["batch"] == 2
    monkeypatch.setattr(passes, "_HELD_BYTES", 16)
    assert "is gone" in _noted(nn.Linear(4, 2), torch.ones(2, 4)).timings()["missing"]


def test_a_module_that_evaluates_now_is_called_in_the_mode_that_it_was_in() -> None:
    seen = []

    class Seen(nn.Dropout):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.append(self.training)
            return super().forward(input)

    model = nn.Sequential(nn.Linear(4, 2), Seen(), Seen().eval())
    found = _noted(model, torch.ones(2, 4))
    model.eval()
    assert found.timings()["batch"] == 2
    assert set(seen[::2]) == {True} and set(seen[1::2]) == {False}
    assert not any(one.training for one in model.modules())


@pytest.mark.parametrize(("name", "value"), [("_LIMIT_NS", 0), ("_MOST_BYTES", 0), ("_MEMORY_PART", 0.0)])
def test_what_takes_too_long_or_too_much_memory_is_left(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    model = nn.Linear(4, 2)
    found = _noted(model, torch.ones(2, 4))
    monkeypatch.setattr(passes, name, value)
    assert "too long, or too much memory" in found.timings()["missing"]


def test_inputs_too_large_to_be_kept_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_INPUT_BYTES", 16)
    assert "too large" in _noted(nn.Linear(4, 2), torch.ones(2, 4)).timings()["missing"]


def test_a_long_step_is_not_run_again() -> None:
    found, model = PassMicrobenchmark(), nn.Linear(4, 2)
    found.note(model, (torch.ones(2, 4),), {})
    found.keep(1600.0)
    assert "too long" in found.timings()["missing"]


def test_an_input_that_wants_a_gradient_has_one_in_each_pass() -> None:
    model = nn.Linear(4, 2)
    features = torch.ones(2, 4, requires_grad=True)
    assert "times" in _noted(model, 2 * features).timings() and features.grad is None


def test_calls_of_a_step_add_up() -> None:
    found, model = PassMicrobenchmark(), nn.Linear(64, 64)
    for rows in (2, 2, 2, 500):
        found.note(model, (torch.ones(rows, 64),), {})
    with torch.no_grad():
        found.note(model, (torch.ones(7, 64),), {})
    found.keep(1.0)
    assert sorted(call.count for call in found.calls.values()) == [1, 3]
    assert found.timings()["batch"] in (2, 500)


def test_it_runs_under_the_jobs_autocast() -> None:
    seen = []

    class Noting(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.append(super().forward(input).dtype)
            return super().forward(input)

    model = Noting(4, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = _noted(model, torch.ones(2, 4))
    assert "times" in found.timings() and set(seen) == {torch.bfloat16}


def test_passes_are_timed_with_a_setting_changed_and_leave_no_trace() -> None:
    model, changed = Eventful(), []
    before = _state(model)
    noted = _noted(model, torch.randn(1, 3, 8, 8))
    found = noted.without({"off": passes.always(lambda: changed.append(1), lambda: changed.append(-1))})
    assert set(found) == {"now_ms", "off_ms"} and min(found.values()) > 0
    assert changed and sum(changed) == 0 and _state(model) == before


def test_without_a_call_no_setting_is_changed() -> None:
    assert "no call" in PassMicrobenchmark().without({"off": passes.always(None, None)})["missing"]


# -- other ways -------------------------------------------------------------------------------------------


FLOAT32, FLOAT64 = [{"dtype": "float32", "self_ms_per_step": 1.0}], [{"dtype": "float64", "self_ms_per_step": 1.0}]


def _tried(
    model: nn.Module, x: torch.Tensor, ops: list[dict[str, Any]] = FLOAT32, made: str = "fused"
) -> dict[str, float]:
    found = ways.timings(_noted(model, x), ops, [{"made": made}])
    assert found["now_ms"] > 0 and all(ms > 0 for _, ms in found["times"])
    return dict(found["times"])


@pytest.fixture
def without_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc's settings are the process's: these tests leave them alone."""
    monkeypatch.setattr(ways.procfs, "libraries", lambda: {"allocator": "jemalloc"})


@pytest.mark.usefixtures("without_allocator")
def test_other_numbers_of_threads_are_tried_and_the_job_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOCTOR_CPUS", "3")
    before, seen = torch.get_num_threads(), set()

    class Watched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.add(torch.get_num_threads())
            return super().forward(x)

    model = Watched(4, 4)
    names = set(_tried(model, torch.randn(2, 4))) - {"bfloat16"}
    assert names == {f"threads={count}" for count in seen - {before}} and {1, 3, before} <= seen
    assert torch.get_num_threads() == before


class Typed(nn.Module):
    """Notes the types and layouts that it meets."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.register_buffer("scale", torch.ones(1, 3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.convolution(images * self.scale)
        last = found.is_contiguous(memory_format=torch.channels_last) and not found.is_contiguous()
        type(self).seen.add((found.dtype, last))
        return found

    seen: ClassVar[set[tuple[torch.dtype, bool]]] = set()


@pytest.mark.usefixtures("without_allocator")
@pytest.mark.parametrize(
    ("dtype", "ops", "way", "met"),
    [
        (torch.float32, FLOAT32, "bfloat16", (torch.bfloat16, False)),
        (torch.float32, FLOAT32, "channels last", (torch.float32, True)),
        (torch.float64, FLOAT64, "float32", (torch.float32, False)),
    ],
)
def test_another_type_or_layout_is_tried_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, ops: list[dict[str, Any]], way: str, met: tuple[Any, bool]
) -> None:
    monkeypatch.setattr(ways.settings, "native", lambda kind: {f"{kind}_native": True})
    model, x = Typed().to(dtype), torch.randn(2, 3, 8, 8, dtype=dtype)
    Typed.seen.clear()
    before = [(id(one), one.dtype, one.data_ptr(), one.tolist()) for one in (*model.parameters(), *model.buffers())]
    assert way in _tried(model, x, ops)
    assert {(dtype, False), met} <= Typed.seen
    after = [(id(one), one.dtype, one.data_ptr(), one.tolist()) for one in (*model.parameters(), *model.buffers())]
    assert after == before and all(one.grad is None for one in model.parameters())


@pytest.mark.usefixtures("without_allocator")
@pytest.mark.parametrize(("width", "tried"), [(1, True), (2, False)])
def test_convolutions_along_the_height_of_thin_images_are_turned_and_make_the_same(width: int, tried: bool) -> None:
    seen: list[torch.Tensor] = []

    class Upright(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(super().forward(images))
            return seen[-1]

    layers = nn.Conv2d(3, 4, (5, 1), stride=(2, 1), padding=(2, 0), dilation=(2, 1)), nn.Conv2d(4, 2, (3, 1), groups=2)
    model, images, plain = Upright(*layers), torch.randn(2, 3, 30, width), nn.Conv2d._conv_forward
    assert ("long axis last" in _tried(model, images)) is tried
    assert nn.Conv2d._conv_forward is plain
    assert all(torch.allclose(one, seen[0], atol=1e-6) for one in seen if one.dtype == torch.float32)
    assert len({one.shape for one in seen}) == 1
    assert "long axis last" not in _tried(nn.Conv2d(3, 4, (1, 5)), torch.randn(2, 3, 1, 30))


class Attending(nn.Module):
    """By hand, or by a layer of torch's."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "by hand":
            return (self.layer.out_proj(x) @ x.transpose(-2, -1)).softmax(-1) @ x
        y, weights = self.layer(x, x, x)
        return y if self.kind == "returned" else y * weights.mean()


@pytest.mark.usefixtures("without_allocator")
@pytest.mark.parametrize(("kind", "tried"), [("by hand", True), ("returned", True), ("used", False)])
def test_attention_is_fused_in_whole_passes_unless_its_weights_are_used(kind: str, tried: bool) -> None:
    model, x = Attending(kind), torch.randn(2, 5, 8)
    before = model(x)
    assert ("fused attention" in _tried(model, x, made="by hand")) is tried
    assert torch.equal(model(x), before) and not model.layer._forward_pre_hooks
    assert "fused attention" not in _tried(model, x)


@pytest.mark.usefixtures("without_allocator")
@pytest.mark.parametrize("uses_it", [True, False])
def test_what_is_handed_to_a_pool_is_done_by_the_caller_too(uses_it: bool) -> None:
    submit, threads = ThreadPoolExecutor.submit, set()

    class Handing(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(pool.map(self._part, [x, x])) if uses_it else self._part(x)  # type: ignore[return-value]

        def _part(self, x: torch.Tensor) -> torch.Tensor:
            threads.add(get_ident())
            return super().forward(x)

    pool = ThreadPoolExecutor(2)
    assert list(pool.map(abs, [-1])) == [1]
    assert ("no pool" in _tried(Handing(4, 4), torch.randn(2, 4))) is uses_it
    assert ThreadPoolExecutor.submit is submit and get_ident() in threads and (len(threads) > 1) is uses_it
    assert not any(thread.is_alive() for thread in pool._threads)
    assert "no pool" not in _tried(nn.Linear(4, 4), torch.randn(2, 4)), "the pool is gone"


@pytest.mark.usefixtures("without_allocator")
def test_what_could_not_pay_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.settings, "native", lambda kind: {})
    monkeypatch.setattr(ways.intra_op, "counts", lambda threads: [threads])
    assert _tried(model := nn.Linear(4, 4), torch.randn(2, 4)) == {}, model


@pytest.mark.usefixtures("without_allocator")
def test_ways_that_would_take_too_long_are_left_out_the_last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.settings, "native", lambda kind: {f"{kind}_native": True})
    monkeypatch.setattr(ways.intra_op, "counts", lambda threads: [threads, threads + 1])
    monkeypatch.setattr(ways, "_LIMIT_NS", 150_000_000 // passes._STRETCH)
    now = [0]
    clock = SimpleNamespace(perf_counter_ns=lambda: now[0], thread_time_ns=lambda: now[0])
    for module in (ways, passes, replay):
        monkeypatch.setattr(module, "time", clock)

    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            now[0] += 30_000_000  # twice this for two ways, and not for three
            return super().forward(x)

    model = Slow(4, 4)
    assert list(_tried(model, torch.randn(2, 4))) == [f"threads={torch.get_num_threads() + 1}"]


def test_memory_that_is_kept_is_tried_where_many_pages_are_touched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Libc:
        gnu_get_libc_version = None

        def mallopt(self, option: int, value: int) -> int:
            asked.append((option, value))
            return 1

    monkeypatch.setattr(ways.ctypes, "CDLL", lambda name: Libc())
    faults = iter([0, 0, 0, 1_000_000])
    monkeypatch.setattr(ways.procfs, "counters", lambda: {"minflt": next(faults)})
    model = nn.Linear(4, 4)
    assert "memory kept" not in _tried(model, torch.randn(2, 4)) and not asked
    assert "memory kept" in _tried(model, torch.randn(2, 4)) and asked == list(ways._KEEP)


def test_passes_that_cannot_be_made_again_are_tried_in_no_way() -> None:
    assert "no call of a module" in ways.timings(PassMicrobenchmark(), FLOAT32, [])["missing"]


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embedding(tokens).sum()


def _considered(lengths: list[int], first: int = 20) -> tuple[PassMicrobenchmark, nn.Module]:
    module = Sequences()
    found = _noted(module, torch.zeros(2, first, dtype=torch.int64))
    for length in lengths:
        found.consider(module, (torch.zeros(2, length, dtype=torch.int64),), {})
    return found, module


def _length(found: PassMicrobenchmark) -> int:
    assert "times" in found.timings()
    (call,) = found.calls.values()
    return call.inputs[0][0].shape[1]


def test_of_batches_of_other_shapes_the_one_of_middle_size_stands_for_all() -> None:
    found, module = _considered([90, 80, 100] * 8)
    assert _length(found) == 100, "of those that were kept, one in three: next to the middle, which is 90"
    found, module = _considered([20, 30, 90] * 8, first=30)
    assert _length(found) == 30
    del module


def _padded(needed: int) -> torch.Tensor:
    return torch.cat([torch.arange(2 * needed).view(2, needed) % 7 + 1, torch.zeros(2, 40 - needed)], 1).long()


def test_of_batches_that_are_padded_alike_the_one_that_needs_a_middle_length_stands_for_all() -> None:
    module = Sequences()
    found = _noted(module, _padded(36))
    for needed in [18, 36, 20] * 8:
        found.consider(module, (_padded(needed),), {})
    assert _length(found) == 40
    (call,) = found.calls.values()
    assert int((call.inputs[0][0] > 0).sum(1).max()) == 20
    found = _noted(module, torch.zeros(2, 40, dtype=torch.int64))
    found.consider(module, (_padded(18),), {})
    assert not found.later, "no sequences, as far as is known"


def test_few_later_passes_are_looked_at_and_those_of_another_module_are_not() -> None:
    found, module = _considered([90] * 100)
    assert len(found.sizes) == passes._CONSIDERED and len(found.later) == 1
    found, module = _considered([])
    found.consider(Sequences(), (torch.zeros(2, 90, dtype=torch.int64),), {})
    assert found.sizes == [] and _length(found) == 20
    found.note(module, (torch.zeros(2, 20, dtype=torch.int64),), {})  # twice in a step
    found.consider(module, (torch.zeros(2, 90, dtype=torch.int64),), {})
    assert found.sizes == []


def test_later_inputs_that_cannot_be_kept_leave_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_INPUT_BYTES", 500)
    found, module = _considered([90] * 30)
    assert found.later == [] and _length(found) == 20
    del module
