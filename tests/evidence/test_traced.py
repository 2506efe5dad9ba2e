"""Evidence from traces: the window, what the device did, and why it had nothing to do."""

from __future__ import annotations

from typing import Any

import pytest
from traces_by_hand import ENGINE, MAIN, TraceByHand

from perfdoctor.evidence.model import Activity, Evidence, Idle, Missing, Site
from perfdoctor.evidence.traced.build import build
from perfdoctor.traces.model import Kind


def evidence(hand: TraceByHand, **changes: Any) -> Evidence:
    (rank,) = build([hand.trace(**changes)]).ranks
    return rank


def activity(hand: TraceByHand, **changes: Any) -> Activity:
    seen = evidence(hand, **changes).activity
    assert not isinstance(seen, Missing)
    return seen


def idle(seen: Activity) -> dict[Idle, float]:
    """Milliseconds per step, rounded to microseconds."""
    return {one.cause: round(one.ms, 3) for one in seen.idle}


def busy_steps() -> TraceByHand:
    """Two steps whose kernels were all launched in time, 20 us apart."""
    hand = TraceByHand()
    hand.steps()
    for step in (0, 1000):
        hand.op("aten::mm", step + 10, step + 200)
        for number in range(10):
            hand.work("gemm", step + number * 100, step + number * 100 + 80, step - 150 + number * 10)
    return hand


# -- the window -------------------------------------------------------------------------------------------


def test_the_window_ends_with_the_last_work_of_the_device() -> None:
    hand = busy_steps()
    hand.work("gemm", 2050, 2300, 1900)
    seen = activity(hand)
    assert seen.window_ms == pytest.approx(2.3)
    assert seen.steps == 2
    assert seen.step_ms == pytest.approx(1.15)


def test_without_steps_the_span_of_the_device_is_one() -> None:
    hand = TraceByHand()
    hand.op("aten::mm", 0, 50)
    hand.work("gemm", 100, 400, 10)
    run = evidence(hand)
    assert not isinstance(run.step, Missing)
    assert (run.step.boundary, run.step.count) == ("trace", 1)
    assert run.step.step_ms == pytest.approx(0.3)


def test_without_the_profilers_steps_those_of_the_optimizer_are_counted() -> None:
    hand = TraceByHand()
    for step in range(3):
        hand.mark("Optimizer.step#SGD.step", 1000 * step + 800, 1000 * step + 900)
        hand.work("gemm", 1000 * step, 1000 * step + 990, 1000 * step - 50)
    run = evidence(hand)
    assert not isinstance(run.step, Missing)
    assert (run.step.boundary, run.step.count) == ("optimizer", 3)
    assert run.step.step_ms == pytest.approx(2.99 / 3)


def test_work_of_the_step_before_is_no_work_of_this_window() -> None:
    hand = busy_steps()
    hand.work("gemm", -900, -100, before=True)
    assert activity(hand).step_ms == pytest.approx(1.0)
    assert activity(hand).unlaunched == 1


def test_a_trace_of_the_cpu_alone_has_parts_and_no_activity() -> None:
    hand = TraceByHand()
    hand.steps()
    hand.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 400)
    hand.op("aten::mm", 400, 600)
    hand.op("autograd::engine::evaluate_function: MmBackward0", 600, 800)
    hand.mark("Optimizer.step#SGD.step", 800, 900)
    run = evidence(hand, devices=(), platform="")
    assert isinstance(run.activity, Missing)
    assert not isinstance(run.step, Missing)
    parts = run.step.parts
    assert parts.input_wait == pytest.approx(0.2)
    assert (parts.forward, parts.backward, parts.optimizer) == pytest.approx((0.1, 0.1, 0.05))
    assert parts.total == pytest.approx(run.step.step_ms)


def test_a_backward_pass_on_the_engines_thread_is_one() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.op("aten::mm", 0, 300)
    hand.op("autograd::engine::evaluate_function: MmBackward0", 320, 500, ENGINE)
    hand.op("autograd::engine::evaluate_function: AddBackward0", 520, 700, ENGINE)
    run = evidence(hand)
    assert not isinstance(run.step, Missing)
    assert run.step.parts.backward == pytest.approx(0.38)


# -- why the device had nothing to do ---------------------------------------------------------------------


def test_gaps_between_work_that_was_queued_in_time_are_nobodys_fault() -> None:
    assert idle(activity(busy_steps())) == {Idle.QUEUED: pytest.approx(0.19), Idle.OTHER: pytest.approx(0.01)}


def test_waiting_for_data_counts_while_the_device_is_idle() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 500)
    hand.work("gemm", 0, 200, before=True)
    hand.work("gemm", 510, 1000, 505)
    seen = activity(hand)
    assert seen.input_ms == pytest.approx(0.5)
    assert idle(seen)[Idle.INPUT] == pytest.approx(0.3)
    assert seen.workers is False


def test_allocator_calls_have_the_idle_time_in_them() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.op("aten::empty", 0, 700)
    hand.call("cudaMalloc", 100, 600)
    hand.work("gemm", 0, 200, before=True)
    hand.work("gemm", 710, 1000, 700)
    seen = activity(hand)
    assert idle(seen)[Idle.ALLOCATOR] == pytest.approx(0.4)
    assert seen.allocator is not None
    assert (seen.allocator.name, seen.allocator.per_step) == ("cudaMalloc", 1.0)


def _synchronised(lead: float) -> TraceByHand:
    """Kernels launched so long before they run, a synchronisation, and a kernel 300 us after it."""
    hand = TraceByHand()
    hand.steps(1)
    for number in range(5):
        hand.work("gemm", 100 * number, 100 * number + 95, 100 * number - lead)
    hand.call("cudaStreamSynchronize", 50, 500)
    hand.op("aten::mm", 780, 800)
    hand.work("gemm", 800, 1000, 790)
    return hand


def test_a_queue_that_runs_dry_after_a_synchronisation_is_its_fault() -> None:
    dry = 0.8 - 0.495
    assert idle(activity(_synchronised(lead=300)))[Idle.SYNC] == pytest.approx(dry)


def test_a_host_that_is_late_anyway_loses_nothing_by_waiting() -> None:
    assert Idle.SYNC not in idle(activity(_synchronised(lead=6)))


def test_a_deep_queue_behind_a_blocked_host_costs_nothing() -> None:
    hand = busy_steps()
    hand.call("cudaDeviceSynchronize", 200, 980)
    assert Idle.SYNC not in idle(activity(hand))


def test_late_kernels_are_those_that_found_their_stream_empty() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.work("gemm", 0, 100, -50)
    hand.work("gemm", 210, 300, 200)
    hand.work("gemm", 310, 400, 250)
    hand.work("gemm", 320, 420, 315, stream=20)
    assert activity(hand).late_share == pytest.approx(2 / 4)


def test_the_line_of_the_users_code_is_the_innermost_frame_that_is_no_librarys() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 500)
    hand.frame("/home/ann/project/train.py(12): main", 0, 1000)
    hand.frame("/home/ann/project/data/loop.py(42): epoch", 0, 600)
    hand.frame("torch/utils/data/dataloader.py(631): __next__", 0, 500)
    hand.frame("threading.py(320): wait", 10, 490)
    hand.work("gemm", 510, 1000, 505)
    (waiting,) = [one for one in activity(hand).idle if one.cause is Idle.INPUT]
    assert waiting.at == Site("data/loop.py", 42, "epoch")


def test_stacks_at_operators_do_where_there_are_no_frames() -> None:
    hand = TraceByHand()
    hand.steps(1)
    stack = "/usr/lib/python3.7/site-packages/torch/nn/functional.py(7): linear;/home/ann/train.py(49): <module>"
    hand.op("aten::mm", 0, 500, stack=stack)
    hand.work("gemm", 505, 1000, 500)
    (launching,) = [one for one in activity(hand).idle if one.cause is Idle.LAUNCHING]
    assert launching.at == Site("train.py", 49, "<module>")


def test_without_stacks_the_line_is_missing_with_the_switch_that_records_it() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.op("aten::mm", 0, 500)
    hand.work("gemm", 505, 1000, 500)
    (one, *_) = activity(hand).idle
    assert isinstance(one.at, Missing)
    assert "with_stack=True" in one.at.remedy


# -- what else --------------------------------------------------------------------------------------------


def test_exposed_copies_are_those_beside_which_nothing_runs() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.work("gemm", 0, 500, -100)
    hand.work("Memcpy HtoD (Pageable -> Device)", 400, 700, 300, kind=Kind.COPY, stream=20)
    copies = activity(hand).copies
    assert copies.ms == pytest.approx(0.3)
    assert copies.pageable_exposed_ms == pytest.approx(0.2)


def test_making_a_copy_ready_while_the_device_idles_is_a_part_of_it() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.call("cudaMemcpyAsync", 0, 350, 0)
    hand.works.append((300, 400, hand.name("Memcpy HtoD (Pageable -> Device)"), 1, 0, 7, 0, -1, -1, 4096, -1, -1))
    hand.work("gemm", 400, 1000, 390)
    seen = activity(hand)
    assert idle(seen)[Idle.COPIES] == pytest.approx(0.3)
    assert seen.copies.pageable_exposed_ms == pytest.approx(0.4)


@pytest.mark.parametrize(
    "kernel",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "rcclGenericKernel",
        "multimem_all_reduce_kernel<c10::BFloat16>",
        "void vllm::cross_device_reduce_1stage<float, 8>",
        "one_shot_all_reduce_kernel",
    ],
)
def test_communication_is_known_under_many_names(kernel: str) -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.work("gemm", 0, 400, -100)
    hand.work(kernel, 300, 900, -50, stream=20)
    talk = activity(hand).collectives
    assert talk is not None
    assert (talk.ms, talk.exposed_ms) == pytest.approx((0.6, 0.5))
    assert isinstance(talk.waiting_ms, Missing)


def _rank(took: float) -> TraceByHand:
    hand = TraceByHand()
    hand.steps(1)
    hand.work("gemm", 0, 100, -100)
    hand.work("ncclDevKernel_AllReduce", 100, 100 + took, -50, stream=20)
    return hand


def test_the_rank_that_waits_least_tells_what_sending_takes() -> None:
    traces = [_rank(took).trace(rank=rank, world_size=2) for rank, took in enumerate((700.0, 50.0))]
    early, late = (rank.activity for rank in build(traces).ranks)
    assert not isinstance(early, Missing) and not isinstance(late, Missing)
    assert early.collectives is not None and late.collectives is not None
    assert (early.collectives.transport_ms, early.collectives.waiting_ms) == pytest.approx((0.05, 0.65))
    assert late.collectives.waiting_ms == pytest.approx(0.0)


@pytest.mark.parametrize(("ranks", "world"), [(2, 4), (1, None)])
def test_with_ranks_missing_nothing_is_said_of_waiting(ranks: int, world: int | None) -> None:
    traces = [_rank(100.0 + rank).trace(rank=rank, world_size=world) for rank in range(ranks)]
    (first, *_) = build(traces).ranks
    assert not isinstance(first.activity, Missing)
    assert first.activity.collectives is not None
    assert isinstance(first.activity.collectives.waiting_ms, Missing)


def test_an_optimizer_that_goes_tensor_by_tensor_is_told_from_one_with_lists() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.mark("Optimizer.step#Adam.step", 500, 900)
    for number in range(4):
        at = 510 + 90 * number
        hand.work("vectorized_elementwise_kernel", at + 6, at + 40, at)
    hand.work("void multi_tensor_apply_kernel<Adam>", 880, 899, 871)
    use = activity(hand).optimizer
    assert use is not None
    assert (use.kernels, use.listed) == (5, 1)
    assert use.host_ms == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("kernel", "inputs", "dtype"),
    [
        ("volta_sgemm_128x32_nt", "float32", "float32"),
        ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", "float32", "tf32"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn", "bfloat16", "bfloat16"),
        ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn", "float16", "float16"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "bfloat16", "bfloat16"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32", "bfloat16", "bfloat16"),
    ],
)
def test_the_type_of_a_product_is_that_of_its_arithmetic(kernel: str, inputs: str, dtype: str) -> None:
    hand = TraceByHand()
    hand.steps(1)
    owner = hand.op("aten::mm", 0, 100, dtype=inputs)
    hand.work(kernel, 200, 700, 50, external=owner)
    (product,) = activity(hand).products
    assert product.dtype == dtype
    assert product.ms == pytest.approx(0.5)


def test_floating_point_operations_come_from_shapes() -> None:
    hand = TraceByHand()
    hand.steps(1)
    owner = hand.op("aten::addmm", 0, 100, dtype="float32", shapes="[512] [64, 256] [256, 512]")
    hand.work("volta_sgemm_128x32_nt", 200, 700, 50, external=owner)
    (kernel,) = activity(hand).kernels
    assert kernel.operator == "aten::addmm"
    assert kernel.flops == 2 * 64 * 256 * 512


def test_self_times_leave_out_operators_within_on_the_same_thread() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.op("aten::linear", 0, 100)
    hand.op("aten::addmm", 10, 90)
    hand.op("aten::add", 20, 40, ENGINE)
    ops = evidence(hand).ops
    assert not isinstance(ops, Missing)
    selves = {op.name: round(op.self_ms_per_step, 3) for op in ops.ops}
    assert selves == {"aten::linear": 0.02, "aten::addmm": 0.08, "aten::add": 0.02}


def test_a_trace_without_a_host_names_no_cause() -> None:
    hand = TraceByHand()
    hand.work("gemm", 0, 100)
    hand.work("gemm", 300, 1000)
    assert idle(activity(hand)) == {Idle.QUEUED: pytest.approx(0.2)}


def test_a_trace_with_nothing_in_it_says_so() -> None:
    run = evidence(TraceByHand())
    assert isinstance(run.step, Missing)
    assert "neither steps" in run.step.reason


def test_the_thread_with_the_steps_is_the_one_that_takes_them() -> None:
    hand = TraceByHand()
    hand.mark("ProfilerStep#1", 0, 100, ENGINE)
    for step in range(3):
        hand.mark(f"ProfilerStep#{step}", 1000 * step, 1000 * step + 990, MAIN)
    run = evidence(hand)
    assert not isinstance(run.step, Missing)
    assert run.step.count == 3


def test_steps_are_counted_for_a_gate() -> None:
    hand = busy_steps()
    hand.op("aten::_local_scalar_dense", 900, 910)
    counted = evidence(hand).counters
    assert not isinstance(counted, Missing)
    assert (counted.first_step, counted.aten_ops, counted.syncs, counted.kernels) == (3, 1.5, 0.5, 10)


def _ranks(*took: tuple[float, ...]) -> list[Any]:
    """Traces of ranks, with what each takes in the one collective of its steps."""
    traces = []
    for rank, of_steps in enumerate(took):
        hand = TraceByHand()
        hand.steps(len(of_steps))
        for step, one in enumerate(of_steps):
            hand.work("gemm", 1000 * step, 1000 * step + 100, 1000 * step - 100)
            hand.work(
                "ncclDevKernel_AllReduce", 1000 * step + 100, 1000 * step + 100 + one, 1000 * step - 50, stream=20
            )
        traces.append(hand.trace(rank=rank, world_size=len(took)))
    return traces


@pytest.mark.parametrize(
    ("took", "late"),
    [
        (((300.0, 310.0, 300.0, 290.0), (50.0, 60.0, 50.0, 40.0), (310.0, 300.0, 300.0, 310.0)), 1),
        (((300.0, 50.0, 300.0, 50.0), (50.0, 300.0, 50.0, 300.0)), None),
        (((300.0, 300.0), (50.0, 50.0)), None),
    ],
    ids=["always", "by turns", "too few steps"],
)
def test_a_rank_is_late_that_is_the_last_in_nearly_all_of_several_steps(took: Any, late: int | None) -> None:
    (first, *_) = build(_ranks(*took)).ranks
    assert not isinstance(first.activity, Missing)
    talk = first.activity.collectives
    assert talk is not None
    assert (None if isinstance(talk.late, Missing) else talk.late.rank) == late
    if not isinstance(talk.late, Missing):
        assert talk.late.ms == pytest.approx(0.25, abs=0.005)


def test_kernels_are_told_by_the_module_that_launched_them_also_in_the_backward_pass() -> None:
    hand = TraceByHand()
    hand.steps(1)
    hand.frame("nn.Module: Net_0", 0, 300)
    hand.frame("nn.Module: Linear_3", 10, 100)
    forward = hand.op("aten::addmm", 20, 40, sequence=7)
    backward = hand.op("AddmmBackward0", 400, 500, ENGINE, sequence=7)
    hand.work("sgemm_forward", 100, 400, 25, external=forward)
    hand.work("sgemm_backward", 450, 950, 410, external=backward, thread=ENGINE)
    assert [kernel.layer for kernel in activity(hand).kernels] == ["Linear_3", "Linear_3"]


def test_the_name_of_the_machine_that_recorded_it_is_masked() -> None:
    source = "secret-host_4711.1694128201545.pt.trace.json"
    run = build([busy_steps().trace(source=source, cut=True, rank=rank) for rank in range(2)])
    assert run.ranks[0].job.command == ("***_4711.1694128201545.pt.trace.json",)
    assert run.notes and not any("secret-host" in note for note in run.notes)
