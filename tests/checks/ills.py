"""One ill run for every finding that the built-in checks can make; the tests of each check and the contract use it."""

from __future__ import annotations

from typing import Any

from samples import (
    ATTENTION,
    CONVOLUTION,
    CUDA_MEMORY,
    FETCH,
    H100,
    HOT_LINES,
    LAYERS,
    LOADER,
    ONE_THREAD,
    RECURRENT,
    healthy,
    on_gpu,
    step,
    with_,
)

from perfdoctor.evidence.model import (
    AttentionPrice,
    BatchPrice,
    BatchPrices,
    CallSite,
    CapPrice,
    CapPrices,
    CollectSite,
    DtypePrice,
    EvalWithGrad,
    Evidence,
    Fetch,
    GpuStranger,
    IndexUse,
    Layer,
    LibraryPrice,
    LibraryUse,
    Line,
    Loader,
    Missing,
    Neighbour,
    Op,
    Parts,
    PciGpu,
    RequestPrice,
    ShapeVariety,
    Site,
    ThreadPrice,
)

IN_PROCESS = Missing("no queue: batches are made in the training process")
GC_LINE = Site("train.py", 31, "train_epoch")


# ---------------------------------------------------------------------------------------------------------
# PD01


def beside_a_gpu(flops: float = 4e10, **changes: Any) -> Evidence:
    """A job on the CPU of a machine with an H100, its driver, and a torch that could use it."""
    product = Op("addmm", "float32", "[512] [32, 512] [512, 512]", "cpu", 8.0, 18.0, 18.0, flops)
    return with_(
        healthy(),
        **{
            "machine__gpus": (H100,),
            "machine__gpu_nodes": 1,
            "machine__cuda_driver": (12, 8),
            "machine__pci_gpus": (PciGpu("nvidia", "0x2330", "nvidia"),),
            "backend__cuda": "12.6",
            "backend__arch_list": ("sm_80", "sm_90"),
            "ops__ops": (product,),
            **changes,
        },
    )


_CONVOLUTION = "[16, 32, 32, 32] [32, 32, 3, 3] [32]"


def without_onednn(share: float = 0.8, ratio: float | None = 3.4, **changes: Any) -> Evidence:
    """Convolutions that take this share of the operators' time, and so many times what they take in oneDNN."""
    took = share * 22.0
    price = () if ratio is None else (LibraryPrice("convolution", _CONVOLUTION, "float32", took / 2, took / 2 / ratio),)
    return with_(
        healthy(),
        **{
            "backend__onednn_enabled": False,
            "backend__onednn_between_steps": False,
            "backend__onednn_prices": price,
            "ops__ops": (
                Op("convolution", "float32", _CONVOLUTION, "cpu", 2.0, 0.01 * took, took, 2e8),
                Op("_slow_conv2d_forward", "float32", _CONVOLUTION, "cpu", 2.0, 0.99 * took, 0.99 * took, 0.0),
            ),
            **changes,
        },
    )


def reference_blas(gflops: float = 1.5, **changes: Any) -> Evidence:
    """Products at that rate, with a BLAS that has no kernels."""
    product = Op("addmm", "float32", "[512] [32, 512] [512, 512]", "cpu", 8.0, 18.0, 18.0, gflops * 18.0 * 1e6)
    return with_(healthy(), **{"backend__blas": "generic", "ops__ops": (product,), **changes})


# ---------------------------------------------------------------------------------------------------------
# PD05


def batch_prices(growing: float = 0.1, quarter: float | None = None) -> BatchPrices:
    """Products of 20 ms a step, of which that share grows with the batch; and what a quarter of it takes of that."""
    larger = 2.5 * (1 + 3 * growing)
    smaller = None if quarter is None else 2.5 * quarter
    price = BatchPrice("addmm", "[512] [32, 512] [512, 512]", 8.0, 2.5, 4, larger, smaller)
    return BatchPrices((price,), 4, 100.0, 0.002)


def small_batch(growing: float = 0.1, batch: float = 4.0, **changes: Any) -> Evidence:
    """A step of 25 ms, 20 of them in products; those grow by that share of themselves with each batch more."""
    return with_(
        healthy(),
        **{
            "ops__batch_prices": batch_prices(growing),
            "ops__ops": (Op("addmm", "float32", "[512] [32, 512] [512, 512]", "cpu", 8.0, 20.0, 20.0, 4e8),),
            "step__samples": batch,
            "loader__batch_size": int(batch),
            **changes,
        },
    )


# PD02


def onednn_off_inside(share: float = 0.8, ratio: float | None = 3.4, **changes: Any) -> Evidence:
    """The same, but on between the steps."""
    return without_onednn(share, ratio, **{"backend__onednn_between_steps": True, **changes})


def unfused(
    made: str = "by hand", took: float = 12.0, ratio: float = 2.0, part: float = 1.0, choice: str = "fused", **one: Any
) -> Evidence:
    """Attention that takes so long a step, and so many times what the fused kernel takes."""
    price = AttentionPrice(now_ms=took * part, fused_ms=took * part / ratio, part=part, choice=choice)
    layer = with_(ATTENTION, **{"made": made, "ms_per_step": took, "price": price, **one})
    line = CallSite("softmax", Site("model.py", 17, "forward"), 1.0, 1.0, f"{layer.queries}x{layer.keys}")
    return with_(healthy(), library_use=LibraryUse((), (), (layer,)), call_sites=(line,))


def unfused_on_gpu(took: float = 10.0, **one: Any) -> Evidence:
    layer = with_(ATTENTION, **{"made": "by hand", "ms_per_step": took, "queries": 1024, "keys": 1024, **one})
    return on_gpu(library_use=LibraryUse((), (), (layer,), on_device=True))


def convolving_on_gpu(
    kernel: str = "cudnn_convolution", took: float = 16.0, one: dict[str, Any] | None = None, **changes: Any
) -> Evidence:
    """Convolutions that take so long of the device's time a step; `one` changes them, `changes` the rest."""
    row = with_(CONVOLUTION, **{"kernel": kernel, "choice": "", "ms_per_step": took, **(one or {})})
    return on_gpu(**{"library_use": LibraryUse((row,), (), (), on_device=True), **changes})


def half_on_gpu(took: float = 16.0, layout: float = 0.0, **one: Any) -> Evidence:
    evidence = convolving_on_gpu(took=took, one={"dtype": "float16", **one})
    return with_(evidence, library_use__layout_ms=layout)


def scattered(copies: float = 4.0) -> Evidence:
    layer = with_(RECURRENT, kernel="_cudnn_rnn", ms_per_step=8.0, copies_ms=copies)
    return on_gpu(library_use=LibraryUse((), (layer,), (), on_device=True))


# ---------------------------------------------------------------------------------------------------------
# PD11


def capped(slower: float = 4.0, took: float = 12.0, **changes: Any) -> Evidence:
    """Under ATEN_CPU_CAPABILITY=default; an operator that takes so long a step is so many times slower for it."""
    variables = (("ATEN_CPU_CAPABILITY", "default"),)
    prices = CapPrices(variables, (CapPrice("gelu", "[64, 4096]", "float32", 4.0, 2.0 * slower, 2.0),), 5, "AVX512")
    return with_(
        healthy(),
        **{
            "backend__variables": variables,
            "backend__capability": "DEFAULT",
            "backend__cap_prices": prices,
            "ops__ops": (Op("gelu", "float32", "[64, 4096]", "cpu", 2.0, took, took, 0.0),),
            **changes,
        },
    )


def masked(**changes: Any) -> Evidence:
    """A virtual machine on Genoa that shows no AVX-512."""
    return with_(healthy(), **{"machine__cpu__flags": ("avx", "avx2", "fma"), "backend__capability": "AVX2", **changes})


# ---------------------------------------------------------------------------------------------------------
# PD12


def crowded(delay_ms: float = 8.0, others: float = 1.0, **changes: Any) -> Evidence:
    """One of two CPUs is kept busy by somebody, and the training thread waits for so long a step."""
    return with_(
        healthy(),
        **{
            "machine__affinity_cpus": 2,
            "machine__logical_cpus": 2,
            "step__run_delay_ms": delay_ms,
            "step__cpu_ms": 15.0,
            "host__job_cpus": 1.0,
            "host__others_cpus": others,
            "host__idle_cpus": max(0.0, 1.0 - others),
            "host__job_run_delay_share": delay_ms / (delay_ms + 24.0),
            "host__neighbours": (Neighbour(4711, "stress-ng", "bob", others),),
            **changes,
        },
    )


def throttled(periods: float = 0.6, delay_ms: float = 8.0, **changes: Any) -> Evidence:
    return with_(
        healthy(),
        **{
            "machine__quota_cpus": 1.0,
            "step__run_delay_ms": delay_ms,
            "host__throttled_share": periods,
            "host__throttled_time_share": 0.5,
            "host__job_run_delay_share": delay_ms / (delay_ms + 24.0),
            **changes,
        },
    )


def shared_gpu(utilisation: float = 0.95, busy_ms: float = 12.0, **changes: Any) -> Evidence:
    return on_gpu(
        **{
            "host__gpu_utilisation": utilisation,
            "ops__device_busy_ms": busy_ms,
            "host__gpu_strangers": (GpuStranger(990, 0, 8 << 30),),
            **changes,
        }
    )


# ---------------------------------------------------------------------------------------------------------
# PD03


def fetch(
    getitem: tuple[float, float] = (0.01, 0.01), collate: tuple[float, float] = (0.5, 0.5), **changes: Any
) -> Fetch:
    """Wall and CPU time of the two halves of making a batch, ms."""
    return with_(
        FETCH,
        getitem_ms=getitem[0],
        getitem_cpu_ms=getitem[1],
        collate_ms=collate[0],
        collate_cpu_ms=collate[1],
        **{"run_delay_ms": 0.0, "read_bytes": 0.0, "batch_bytes": 100_000.0, **changes},
    )


def waiting(wait_ms: float, made: Fetch | Missing, *, train_ms: float = 5.0, cpus: int = 2, **loader: Any) -> Evidence:
    """A loop that trains for 5 ms on one of two CPUs and waits for its one loader, which has one worker."""
    changed: Loader = with_(
        LOADER,
        **{
            "num_workers": 1,
            "wait_ms": wait_ms,
            "wait_p95_ms": 1.5 * wait_ms,
            "empty_share": 1.0,
            "fetch": made,
            **loader,
        },
    )
    if not changed.num_workers:
        changed = with_(changed, empty_share=IN_PROCESS, start_method="", prefetch_factor=None, transport_ms=0.0)
    parts = Parts(input_wait=wait_ms, forward=0.3 * train_ms, backward=0.6 * train_ms, optimizer=0.1 * train_ms)
    own_cpu = 0.0 if changed.num_workers or isinstance(made, Missing) else made.getitem_cpu_ms + made.collate_cpu_ms
    seen = step(parts, cpu_ms=train_ms + own_cpu, process_cpu_ms=train_ms + own_cpu, run_delay_ms=0.0)
    return with_(
        healthy(),
        step=seen,
        loaders=(changed,),
        machine__affinity_cpus=cpus,
        machine__logical_cpus=cpus,
        gc=Missing("not part of this case"),
        ops=Missing("not part of this case"),
        memory=Missing("not part of this case"),
    )


def collecting_workers(gc_ms: float = 30.0, line: Site | None = GC_LINE, workers: int = 2) -> Evidence:
    """Making a batch takes 10 ms and the workers' collections; training takes 5."""
    made = with_(fetch((9.0, 9.0), (1.0, 1.0)), gc_ms=gc_ms, gc_line=line)
    return waiting((10.0 + gc_ms) / workers - 5.0, made, num_workers=workers)


def pageable_copies(copies_ms: float = 5.0) -> Evidence:
    return on_gpu(ops__device_copies_ms=copies_ms, ops__pageable_copies_ms=copies_ms)


def restarted_workers(start_ms: float = 100.0, epoch: float = 10.0, irregular_ms: float | None = None) -> Evidence:
    """Workers that every epoch starts anew; what that takes lies in irregular steps."""
    extra = start_ms / epoch if irregular_ms is None else irregular_ms
    return with_(
        healthy(),
        loader__persistent_workers=False,
        loader__iterators=20,
        loader__iterator_start_ms=start_ms,
        loader__batches_per_iterator=epoch,
        step__irregular=19,
        step__irregular_ms=extra,
    )


# ---------------------------------------------------------------------------------------------------------
# PD04


def explicit_collections(share: float = 0.5, *lines: Site) -> Evidence:
    """Every step collects, in each of the lines alike, for that share of the step together."""
    sites = lines or (GC_LINE,)
    cost = 20.0 * share / (1 - share)
    each = tuple(CollectSite(site, 1.0, cost / len(sites), cost / len(sites)) for site in sites)
    return with_(
        healthy(),
        step=step(Parts(input_wait=0.0, forward=8.0, backward=10.0, optimizer=2.0, gc=cost)),
        gc__ms_per_step=cost,
        gc__automatic_ms_per_step=0.0,
        gc__per_step=(0.0, 0.0, float(len(sites))),
        gc__full_pause_ms=cost / len(sites),
        gc__longest_pause_ms=1.3 * cost / len(sites),
        gc__full_collected=12.0,
        gc__explicit=each,
    )


def automatic_collections(share: float = 0.3, ranks: int = 1) -> Evidence:
    cost = 20.0 * share / (1 - share)
    return with_(
        healthy(),
        step=step(Parts(forward=8.0, backward=10.0, optimizer=2.0, gc=cost)),
        gc__ms_per_step=cost,
        gc__automatic_ms_per_step=cost,
        gc__per_step=(3.0, 0.3, 0.05),
        gc__full_pause_ms=60.0,
        gc__longest_pause_ms=90.0,
        job__world_size=ranks,
    )


# ---------------------------------------------------------------------------------------------------------
# PD06


def serving(**changes: Any) -> Evidence:
    """Four threads that call one small network all the time: 1 ms each, for 0.15 ms of work."""
    elsewhere = {name: value for name, value in changes.items() if "__" in name or name in ("step", "ops", "memory")}
    return with_(
        healthy(),
        **{
            "step": step(Parts(forward=1.0, other=0.05), boundary="forward", samples=Missing("no loader"), cpu_ms=0.4),
            "ops": Missing("training runs on another thread"),
            "loaders": (),
            "concurrency": with_(
                ONE_THREAD,
                **{
                    "threads": 4,
                    "shared": True,
                    "forwards": 8_000,
                    "overlapped_share": 0.99,
                    "in_flight": 3.9,
                    "wall_ms": 1.0,
                    "measured": 1_000,
                    "cpu_ms": 0.4,
                    "least_cpu_ms": 0.15,
                    "blocked_share": 0.4,
                    "delay_share": 0.1,
                    "occupied_share": 3.9,
                    "site": Site("serve.py", 17, "answer"),
                    "price": RequestPrice(4, 16, 16, 0.05, 0.07, 1, 0.05, 0.05, 5),
                    **{name: value for name, value in changes.items() if name not in elsewhere},
                },
            ),
            **elsewhere,
        },
    )


def behind_a_lock(**changes: Any) -> Evidence:
    """The same threads, one at a time."""
    return serving(
        **{
            "overlapped_share": 0.0,
            "in_flight": 1.0,
            "wall_ms": 1.0,
            "measured": 0,
            "cpu_ms": 0.98,
            "least_cpu_ms": 0.9,
            "blocked_share": 0.0,
            "delay_share": 0.0,
            "occupied_share": 0.95,
            "waiters": 3.0,
            "price": RequestPrice(4, 16, 16, 0.6, 0.8, 1, 0.6, 0.6, 5),
            "step": step(Parts(forward=1.0, other=3.0), boundary="forward", samples=Missing("no loader")),
            **changes,
        }
    )


def with_teams(**changes: Any) -> Evidence:
    """Four threads with large operators and four intra-op threads each, on four CPUs."""
    return serving(
        **{
            "wall_ms": 20.0,
            "cpu_ms": 8.0,
            "least_cpu_ms": 7.5,
            "blocked_share": 0.3,
            "price": RequestPrice(4, 6, 6, 7.0, 27.0, 4, 15.0, 9.0, 5),
            "threads__intra_op": 4,
            "step": step(Parts(forward=20.0, other=0.1), boundary="forward", samples=Missing("no loader")),
            **changes,
        }
    )


def graphs_in_threads(**changes: Any) -> Evidence:
    """Threads that take turns, in evaluation mode, with gradients on."""
    return serving(
        **{"overlapped_share": 0.1, "measured": 50, "ungraded": 8_000, "ungraded_share": 1.0, "blocked_share": 0.0}
        | changes
    )


# ---------------------------------------------------------------------------------------------------------
# PD07

_SHAPES = "[32, 512] [512, 512]"


def slow_type(dtype: str, profiled_ms: float = 20.0, ratio: float | None = 2.2, **changes: Any) -> Evidence:
    """All products in one type, profiled for so long a step; `ratio` over float32 was measured."""
    price = () if ratio is None else (DtypePrice("mm", _SHAPES, dtype, 1.0, 1.0 / ratio),)
    return with_(
        healthy(),
        **{
            "ops__ops": (
                Op("mm", dtype, _SHAPES, "cpu", profiled_ms, profiled_ms, profiled_ms, 4e8),
                Op("add", "float32", "[512]", "cpu", 10.0, 1.0, 1.0, 1e6),
            ),
            "ops__self_ms_per_step": max(22.0, profiled_ms + 1.0),
            "ops__self_ms_by_dtype": ((dtype, profiled_ms), ("float32", max(1.0, 22.0 - profiled_ms))),
            "ops__prices": price,
            "precision__parameter_dtypes": ((dtype, 1_000_000),),
            "precision__batch_dtypes": (dtype,),
            "call_sites": (CallSite("float64", Site("train.py", 40, "forward"), 10.0, 5.0),),
            **changes,
        },
    )


def float64_on_gpu(share: float = 0.5) -> Evidence:
    ops = (
        Op("mm", "float64", _SHAPES, "cpu", 8.0, 0.2, 0.2, share * 1e9),
        Op("mm", "float32", _SHAPES, "cpu", 8.0, 0.2, 0.2, (1 - share) * 1e9),
    )
    return on_gpu(ops__ops=ops, ops__device_busy_ms=20.0)


def idle_tensor_cores(share: float = 0.3, **changes: Any) -> Evidence:
    """float32 products that take this share of the step at the H100's 67 TFLOP/s."""
    flops = share * 25e-3 * 67e12
    return on_gpu(
        **{
            "precision__tf32_matmul": False,
            "ops__ops": (Op("mm", "float32", "[4096, 4096] [4096, 4096]", "cpu", 8.0, 0.1, 0.1, flops),),
            **changes,
        }
    )


def needless_scaler(cost_ms: float = 1.0, **changes: Any) -> Evidence:
    scaling = Op("_amp_foreach_non_finite_check_and_unscale_", "float32", "[512]", "cpu", 1.0, cost_ms, cost_ms, 0.0)
    return with_(
        healthy(),
        **{
            "ops__ops": (*healthy().ops.ops, scaling),
            "precision__grad_scaler": True,
            "precision__grad_scaler_site": Site("train.py", 9, "main"),
            "precision__autocast_dtype": "bfloat16",
            **changes,
        },
    )


def conversions(cost_ms: float = 5.0, *kinds: str, **changes: Any) -> Evidence:
    kinds = kinds or ("float32->float64", "float64->float32")
    calls = tuple(
        CallSite("convert", Site("train.py", 50 + i, "forward"), 4.0, cost_ms / len(kinds), kind)
        for i, kind in enumerate(kinds)
    )
    return with_(healthy(), **{"call_sites": calls, **changes})


# ---------------------------------------------------------------------------------------------------------
# PD08


def churn(faults_ms: float = 6.0, system_ms: float | None = None, **changes: Any) -> Evidence:
    """So many page faults at 500 ns each, in a kernel that worked as long or for `system_ms`."""
    return with_(
        healthy(),
        **{
            "memory__minor_faults": faults_ms * 1e6 / 500.0,
            "memory__system_cpu_ms": faults_ms if system_ms is None else system_ms,
            **changes,
        },
    )


def emptied_cache(cost_ms: float = 2.0) -> Evidence:
    calls = (CallSite("empty_cache", Site("train.py", 61, "train_epoch"), 1.0, cost_ms),)
    return on_gpu(memory__empty_cache=calls)


def graph_in_evaluation(forward_ms: float = 10.0, **changes: Any) -> Evidence:
    """Validation between the training steps, whose forwards record graphs."""
    evaluation = EvalWithGrad(Site("train.py", 70, "validate"), 400, forward_ms)
    return with_(
        healthy(),
        **{"memory__eval_with_grad": evaluation, "step__irregular": 2, "step__irregular_ms": forward_ms, **changes},
    )


def unused_gradients(backward_ms: float = 6.0, **changes: Any) -> Evidence:
    """A model of one layer in training mode, 8 ms forward and so long backward, that no optimizer updates."""
    evidence = healthy()
    assert not isinstance(evidence.layers, Missing)
    idle = with_(evidence.layers.layers[0], forward_ms=8.0, backward_ms=backward_ms, idle=True, **changes)
    return with_(evidence, layers__layers=(idle, *evidence.layers.layers[1:]))


def cuda_allocator(**changes: Any) -> Evidence:
    return on_gpu(cuda_memory=with_(CUDA_MEMORY, **changes))


# ---------------------------------------------------------------------------------------------------------
# PD09


def layer(kind: str = "Linear", share: float = 0.6, flops: float = 0.6, **changes: Any) -> Layer:
    """A layer that takes this share of a step of 25 ms, a third of it forward."""
    return with_(
        LAYERS.layers[0],
        **{
            "name": "big",
            "kind": kind,
            "order": 2,
            "forward_ms": 25.0 * share / 3,
            "backward_ms": 25.0 * share * 2 / 3,
            "time_share": share,
            "flop_share": flops,
            "flops_per_step": flops * 4e8,
            **changes,
        },
    )


def with_layer(one: Layer, **changes: Any) -> Evidence:
    """A healthy network's layers around one that is not; that one is the slowest."""
    others = tuple(with_(other, forward_ms=0.5, backward_ms=1.0, time_share=0.06) for other in LAYERS.layers)
    ordered = tuple(sorted((one, *others), key=lambda layer: -layer.ms))
    return with_(healthy(), **{"layers__layers": ordered, **changes})


def too_wide(share: float = 0.7, flops: float = 0.9, side: int = 65536, **changes: Any) -> Evidence:
    one = layer(share=share, flops=flops, weight_shape=(512, side), parameters=512 * side)
    total = (("float32", 512 * side + 1_000_000),)
    return with_layer(one, **{"precision__parameter_dtypes": total, **changes})


def wide_head(outputs: int = 50_257, share: float = 0.45, flops: float = 0.5) -> Evidence:
    return with_layer(layer(share=share, flops=flops, order=9, weight_shape=(outputs, 512), name="head"))


def unused_outputs(
    highest: int = 299, outputs: int = 2_500, share: float = 0.3, targets: int = 3_000, distinct: int = 290
) -> Evidence:
    """A head of which the targets use the first classes only; its loss takes 1.5 ms of the step of 25 beside it."""
    head = layer(share=share, flops=0.3, order=9, weight_shape=(outputs, 192), name="head", parameters=0)
    loss = Op("_log_softmax", "float32", f"[1536, {outputs}]", "cpu", 1.0, 1.5, 1.5, 0.0)
    return with_layer(
        head,
        ops__ops=(loss, *healthy().ops.ops),  # type: ignore[union-attr]
        index_use=(IndexUse("target", outputs, 0, targets, distinct, highest),),
    )


def memory_bound(share: float = 0.4, flops: float = 0.02, **changes: Any) -> Evidence:
    return with_layer(layer("BatchNorm2d", share, flops, **{"weight_shape": (), "parameters": 128, **changes}))


def dense_embedding(cost_ms: float = 4.0, rows: int = 100_000, looked_up: int = 1_000) -> Evidence:
    """A table whose gradient takes so long; it holds nine tenths of the parameters, and of the optimizer's 2 ms."""
    table = layer("Embedding", 0.2, 0.0, weight_shape=(rows, 64), parameters=rows * 64, input_shape=(looked_up,))
    gradient = Op("embedding_dense_backward", "float32", "[1000, 64]", "cpu", 1.0, cost_ms, cost_ms, 0.0)
    return with_layer(
        table,
        ops__ops=(gradient, *healthy().ops.ops),  # type: ignore[union-attr]
        precision__parameter_dtypes=(("float32", round(rows * 64 / 0.9)),),
    )


def time_loop(calls: float = 100.0, share: float = 0.6, kind: str = "LSTMCell") -> Evidence:
    cell = layer(kind, share, 0.3, calls_per_step=calls, name="cell")
    line = Line(
        Site("train.py", 25, "forward", "torch/nn/modules/rnn.py:forward"),
        *("forward", 10 * calls, 7.0, 3.0, 0.9, 0.95, calls),
    )
    return with_layer(cell, hot_lines=(line, *HOT_LINES))


# ---------------------------------------------------------------------------------------------------------
# PD10

LOSS_LINE = Site("train.py", 50, "sample_loss")
READ_LINE = Site("train.py", 60, "main")


def element_loop(runs: float = 256.0, share: float = 0.6, op_us: float = 4.0, **changes: Any) -> Evidence:
    """Two lines of a loss that run once per sample and take this share of the forward pass together."""
    ops = 3 * runs
    forward = 8.0 * share
    lines = tuple(
        Line(
            with_(LOSS_LINE, line=50 + i, **{"function": "sample_loss", **changes}),
            *("forward", part * ops, part * forward, part * ops * op_us / 1000, part * share, part * share, runs),
        )
        for i, part in enumerate((0.7, 0.3))
    )
    return with_(healthy(), hot_lines=(*lines, *HOT_LINES))


def state_copies(copying_ms: float = 3.0) -> Evidence:
    """An average of the weights that copies the state, so long, and goes through 40 tensors of it, a third of that."""
    copying = Site("ema.py", 37, "update", "torch/nn/modules/module.py:_save_to_state_dict")
    averaging = Site("ema.py", 40, "update")
    lines = (
        Line(copying, "other", 320.0, copying_ms, 1.6, 0.6, 0.7, 1.0),
        Line(averaging, "other", 120.0, copying_ms / 3, 0.8, 0.2, 0.3, 40.0),
        Line(with_(averaging, function="main"), "other", 4.0, 0.5, 0.1, 0.1, 0.0, 1.0),
    )
    parts = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=4.7)
    return with_(healthy(), step=step(parts), hot_lines=(*lines, *HOT_LINES))


def scalar_reads(reads: float = 200.0, line_ms: float = 4.0, each_us: float = 2.0, **call: Any) -> Evidence:
    """A line that reads one scalar per run, and takes so long a step."""
    found = CallSite("scalar_read", READ_LINE, reads, reads * each_us / 1000, "other")
    line = Line(READ_LINE, "other", 4 * reads, line_ms, line_ms / 3, 0.9, 0.9, reads)
    return with_(
        healthy(),
        step=step(Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=4.7)),
        call_sites=(with_(found, **call),),
        hot_lines=(line, *HOT_LINES),
    )


def device_sync(reads: float = 3.0, ms: float = 5.0, **call: Any) -> Evidence:
    found = CallSite("scalar_read", READ_LINE, reads, ms, "forward")
    return on_gpu(call_sites=(with_(found, **call),))


def round_trip(ms: float = 3.0, back: str = "main", copies: float = 2.0) -> Evidence:
    return on_gpu(
        call_sites=(
            CallSite("copy", READ_LINE, copies, 0.8 * ms, "cuda->cpu"),
            CallSite("copy", Site("train.py", 64, back), copies, 0.2 * ms, "cpu->cuda"),
        )
    )


# ---------------------------------------------------------------------------------------------------------
# PD13


def priced_threads(now: int, prices: dict[int, float], cpus: int = 2, **changes: Any) -> Evidence:
    """`now` threads on so many CPUs, and what the largest operators take with 1, 2, ... threads."""
    return with_(
        healthy(),
        **{
            "machine__affinity_cpus": cpus,
            "machine__logical_cpus": cpus,
            "threads__intra_op": now,
            "ops__thread_prices": tuple(ThreadPrice(threads, ms) for threads, ms in prices.items()),
            **changes,
        },
    )


def pinned_workers(wait_ms: float = 10.0, **changes: Any) -> Evidence:
    return with_(
        healthy(),
        **{
            "step": step(Parts(input_wait=wait_ms, forward=8.0, backward=14.0, optimizer=2.0)),
            "threads__variables": (("OMP_PLACES", "cores"), ("OMP_PROC_BIND", "close")),
            "threads__job_affinity_cpus": 1,
            "loader__worker_threads__affinity_cpus": 1,
            "loader__worker_threads__distinct_affinities": 1,
            **changes,
        },
    )


# ---------------------------------------------------------------------------------------------------------

ILL: dict[str, Evidence] = {
    "PD01.cpu-only-build": beside_a_gpu(backend__cuda="", backend__arch_list=()),
    "PD01.no-driver": beside_a_gpu(machine__gpus=(), machine__cuda_driver=None),
    "PD01.driver-too-old": beside_a_gpu(machine__cuda_driver=(11, 8)),
    "PD01.architecture-not-built": beside_a_gpu(machine__gpus=(with_(H100, capability=(7, 0)),)),
    "PD01.model-on-cpu": beside_a_gpu(),
    "PD01.accelerator-unused": beside_a_gpu(
        backend__xpu_built=True,
        machine__gpus=(),
        machine__gpu_nodes=0,
        machine__pci_gpus=(PciGpu("intel", "0x0bd5", "i915"),),
    ),
    "PD01.onednn-off": without_onednn(),
    "PD01.slow-blas": reference_blas(),
    "PD01.part-on-cpu": on_gpu(
        backend__parameters_by_device=(("cuda:0", 900_000), ("cpu", 100_000)), ops__device_busy_ms=8.0
    ),
    "PD01.data-parallel": on_gpu(backend__data_parallel=True, host__gpus_in_use=(0, 1)),
    "PD01.idle-gpus": on_gpu(host__gpus_idle=(1, 2, 3)),
    "PD02.onednn-disabled": onednn_off_inside(),
    "PD02.attention-by-hand": unfused(),
    "PD02.attention-weights-returned": unfused(module="MultiheadAttention"),
    "PD02.attention-math": unfused("math"),
    "PD02.cudnn-mismatched": convolving_on_gpu("thnn_conv2d", cudnn__error="cuDNN version incompatibility"),
    "PD02.cudnn-missing": convolving_on_gpu("thnn_conv2d", cudnn__available=False),
    "PD02.cudnn-disabled": convolving_on_gpu("thnn_conv2d", cudnn__enabled_in_forward=False),
    "PD02.native-convolutions": convolving_on_gpu("slow_conv3d"),
    "PD02.benchmark-off": convolving_on_gpu(cudnn__benchmark=False),
    "PD02.benchmark-on-new-shapes": convolving_on_gpu(cudnn__shapes=ShapeVariety(100, 60, 30)),
    "PD02.deterministic": convolving_on_gpu(cudnn__deterministic=True),
    "PD02.channels-first": half_on_gpu(),
    "PD02.rnn-weights-scattered": scattered(),
    "PD03.too-few-workers": waiting(20.0, fetch((19.0, 1.0)), train_ms=10.0, num_workers=0),
    "PD03.storage": waiting(14.6, fetch((60.0, 1.0)), num_workers=16),
    "PD03.transform": waiting(22.3, fetch((25.0, 17.0), (0.7, 0.7), run_delay_ms=8.0), empty_share=0.95),
    "PD03.collate": waiting(10.3, fetch((0.01, 0.01), (15.0, 13.0)), empty_share=0.72),
    "PD03.worker-collections": collecting_workers(),
    "PD03.per-sample-indexing": waiting(2.0, fetch((1.2, 1.2), (0.7, 0.7)), num_workers=0, batch_size=256),
    "PD03.no-cpu-left": waiting(30.0, fetch((25.0, 4.0), run_delay_ms=21.0)),
    "PD03.needless-workers": waiting(2.0, fetch(), empty_share=0.0, transport_ms=0.9),
    "PD03.transport": waiting(
        40.0, fetch((20.0, 20.0)), empty_share=0.0, transport_ms=38.0, transport_bytes=18_000.0, num_workers=4
    ),
    "PD03.iterator-rebuilt": waiting(
        57.0, fetch(), num_workers=0, iterators=200, iterator_start_ms=57.0, batches_per_iterator=1.0
    ),
    "PD03.input-wait": waiting(10.0, Missing("no batch was timed where it is made (2 workers, {0} of them seen)")),
    "PD03.workers-restarted": restarted_workers(),
    "PD03.pageable-copies": pageable_copies(),
    "PD04.explicit-collect": explicit_collections(),
    "PD04.automatic-collections": automatic_collections(),
    "PD05.mergeable-accumulation": small_batch(step__samples=32.0, loader__steady_batches_per_step=8.0),
    "PD05.batch-too-small": small_batch(),
    "PD05.batch-too-large": small_batch(1.0, 256.0, ops__batch_prices=batch_prices(1.0, quarter=0.1)),
    "PD06.gil-bound-forwards": serving(),
    "PD06.serialised-forwards": behind_a_lock(),
    "PD06.oversubscribed-teams": with_teams(),
    "PD06.grad-in-threads": graphs_in_threads(),
    "PD07.float64": slow_type("float64"),
    "PD07.float16-emulated": slow_type("float16", ratio=180.0),
    "PD07.bfloat16-emulated": slow_type("bfloat16", ratio=40.0, precision__bf16_native=False),
    "PD07.tensor-cores-unused": idle_tensor_cores(),
    "PD07.needless-grad-scaler": needless_scaler(),
    "PD07.conversions": conversions(),
    "PD08.allocator-churn": churn(),
    "PD08.empty-cache": emptied_cache(),
    "PD08.grad-in-evaluation": graph_in_evaluation(),
    "PD08.caching-disabled": cuda_allocator(caching=False, device_allocs_per_step=40.0),
    "PD08.fragmentation": cuda_allocator(
        alloc_retries_per_step=0.2, device_allocs_per_step=4.0, peak_allocated_bytes=5 << 30
    ),
    "PD08.alloc-retries": cuda_allocator(alloc_retries_per_step=0.2, device_allocs_per_step=4.0),
    "PD09.oversized-layer": too_wide(),
    "PD09.unused-outputs": unused_outputs(),
    "PD09.oversized-head": wide_head(),
    "PD09.memory-bound-layer": memory_bound(),
    "PD09.dense-embedding-gradient": dense_embedding(),
    "PD08.unused-gradients": unused_gradients(),
    "PD10.state-copies": state_copies(),
    "PD09.time-loop": time_loop(),
    "PD10.element-loop": element_loop(),
    "PD10.scalar-reads": scalar_reads(),
    "PD10.device-sync": device_sync(),
    "PD10.round-trip": round_trip(),
    "PD11.capped-by-environment": capped(),
    "PD11.masked-by-hypervisor": masked(),
    "PD12.cpu-contention": crowded(),
    "PD12.throttled": throttled(),
    "PD12.steal": with_(healthy(), host__steal_share=0.3),
    "PD12.memory-pressure": with_(
        healthy(), host__memory_pressure_share=0.3, step__cpu_ms=14.0, host__swap_in_bytes=1e8, host__seconds=5.0
    ),
    "PD12.gpu-shared": shared_gpu(),
    "PD12.gpu-throttled": on_gpu(host__gpu_throttled_share=0.9, host__gpu_throttled_clock=0.5),
    "PD13.too-many-threads": priced_threads(16, {1: 10.0, 2: 6.0, 16: 12.0}),
    "PD13.torchrun-single-thread": priced_threads(
        1, {1: 10.0, 4: 3.0}, cpus=8, threads__torchrun_default=True, job__local_ranks=2, job__world_size=2
    ),
    "PD13.more-threads-than-quota": priced_threads(
        48, {1: 10.0, 2: 6.0, 48: 90.0}, cpus=48, machine__quota_cpus=2.0, host__throttled_share=0.6
    ),
    "PD13.spin-collapse": priced_threads(2, {1: 10.0, 2: 310.0}, host__job_run_delay_share=0.4, host__others_cpus=1.0),
    "PD13.workers-pinned": pinned_workers(),
}
"""Finding id -> a run that has it, and for its check nothing else."""
