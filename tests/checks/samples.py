"""Evidence built by hand: a healthy run, an empty one, and what a test changes about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from perfdoctor.diagnosis.findings import Finding
from perfdoctor.diagnosis.outcomes import Check, Outcome, OutcomeKind
from perfdoctor.evidence.model import (
    Attention,
    Backend,
    BatchTiming,
    BatchTimings,
    Checkpoints,
    Concurrency,
    Convolution,
    Cpu,
    CudaMemory,
    Cudnn,
    DeviceParts,
    DeviceTimeline,
    Evaluations,
    Evidence,
    Fetch,
    GarbageCollection,
    Gpu,
    Host,
    HostMemory,
    Job,
    JobAnatomy,
    JobEnd,
    JobParts,
    Layer,
    LayerProfile,
    LibraryUse,
    Line,
    Loader,
    LoggingLine,
    Machine,
    Missing,
    Op,
    OpProfile,
    OwnCost,
    Parts,
    Precision,
    Recurrent,
    ShapeVariety,
    Site,
    Step,
    StepGrowth,
    Threads,
    ThreadTiming,
    Trend,
    WorkerThreads,
)

T = TypeVar("T")
H100 = Gpu(0, "NVIDIA H100 80GB HBM3", 80 << 30, "570.86", (9, 0))

NOT_SEEN = Missing("not part of this test", "look elsewhere")
NO_GPU = Missing("no GPU")
LOADER_LINE = Site("train.py", 12, "main")

MACHINE = Machine(
    cpu_model="EPYC 9354",
    logical_cpus=4,
    physical_cores=4,
    affinity_cpus=4,
    quota_cpus=None,
    memory_bytes=16 << 30,
    kernel="6.18.0",
    page_fault_ns=500.0,
    cpu=Cpu(("avx", "avx2", "avx512_bf16", "avx512f", "fma"), True, "AuthenticAMD", 25, 17),
)
BACKEND = Backend(
    cuda="",
    hip="",
    arch_list=(),
    blas="mkl",
    onednn_built=True,
    onednn_enabled=True,
    acl=False,
    capability="AVX512",
    xpu_built=False,
    mps_available=False,
    data_parallel=False,
    parameters_by_device=(("cpu", 1_000_000),),
    batch_devices=("cpu",),
    variables=(("OMP_NUM_THREADS", "1"),),
)
JOB = Job(
    command=("python", "train.py"),
    cwd="/home/ann/job",
    python_version="3.11.7",
    torch_version="2.13.0",
    torch_build="cpu",
    started="2026-11-20T23:50:00Z",
    end=JobEnd("stopped"),
    world_size=1,
    local_ranks=1,
    workers=2,
    helpers=0,
    frameworks=(),
    environment=(("OMP_NUM_THREADS", "1"),),
)
HOST = Host(
    samples=10,
    seconds=5.0,
    job_cpus=1.6,
    others_cpus=0.1,
    idle_cpus=2.3,
    steal_share=0.0,
    job_run_delay_share=0.01,
    throttled_share=0.0,
    throttled_time_share=NOT_SEEN,
    pressure_share=0.01,
    memory_pressure_share=NOT_SEEN,
    memory_available_bytes=8 << 30,
    swap_in_bytes=0.0,
    peak_job_bytes=1 << 30,
    neighbours=(),
    gpu_utilisation=NO_GPU,
    gpus_in_use=(),
    gpus_idle=(),
    gpu_other_processes=(),
    gpu_throttled_share=NO_GPU,
    gpu_throttled_clock=NO_GPU,
)
FETCH = Fetch(
    batches=200,
    getitem_ms=12.0,
    getitem_cpu_ms=11.5,
    collate_ms=1.0,
    collate_cpu_ms=1.0,
    run_delay_ms=0.2,
    read_bytes=1e6,
    batch_bytes=1_000_000.0,
)
LOADER = Loader(
    site=LOADER_LINE,
    dataset="Images",
    batch_size=32,
    num_workers=2,
    prefetch_factor=2,
    pin_memory=False,
    persistent_workers=True,
    start_method="fork",
    batches=200,
    wait_ms=0.3,
    wait_p95_ms=0.6,
    empty_share=0.01,
    transport_ms=0.2,
    transport_bytes=437.0,
    iterators=1,
    iterated_at=Site("train.py", 41, "main"),
    iterator_start_ms=60.0,
    batches_per_iterator=210.0,
    fetch=FETCH,
    worker_threads=WorkerThreads(intra_op=1, affinity_cpus=4, distinct_affinities=1),
)
BATCH_TIMINGS = BatchTimings(
    ops=(
        BatchTiming("addmm", "[512] [32, 512] [512, 512]", 8.0, 1.75, 2, 3.4),
        BatchTiming("mm", "[512, 32] [32, 512]", 16.0, 0.375, 4, 1.4),
    ),
    smaller=4,
    peak_gflops=100.0,
    floor_ms=0.002,
)
LAYERS = LayerProfile(
    layers=tuple(
        Layer(
            name=f"layers.{2 * i}",
            kind="Linear",
            order=i,
            leaf=True,
            calls_per_step=1.0,
            forward_ms=2.0,
            backward_ms=4.0,
            time_share=0.24,
            flops_per_step=1e8,
            flop_share=0.25,
            parameters=250_000,
            parameter_bytes=1_000_000,
            input_shape=(32, 512),
            weight_shape=(512, 512),
        )
        for i in range(4)
    ),
    count=9,
    total_ms=25.0,
    flops_per_step=4e8,
)
HOT_LINES = (
    Line(Site("train.py", 42, "main", "torch/_tensor.py:backward"), "backward", 60.0, 14.0, 14.0, 1.0, 1.0, 1.0),
    Line(Site("train.py", 20, "forward", "torch/nn/functional.py:linear"), "forward", 30.0, 7.0, 6.5, 0.88, 0.75, 1.0),
    Line(Site("train.py", 43, "main"), "optimizer", 20.0, 2.0, 1.5, 1.0, 1.0, 1.0),
    Line(Site("train.py", 41, "main"), "forward", 10.0, 1.0, 0.5, 0.12, 0.25, 1.0),
)
CONVOLUTION = Convolution(
    kernel="mkldnn_convolution",
    choice="Mkldnn",
    layer="stem",
    module="Conv2d",
    dtype="float32",
    input_shape=(32, 3, 32, 32),
    weight_shape=(16, 3, 3, 3),
    channels_last=False,
    calls_per_step=1.0,
    ms_per_step=4.0,
)
ATTENTION = Attention(
    made="fused",
    layer="blocks.0",
    module="Attention",
    dtype="float32",
    batch=32,
    queries=256,
    width=32,
    keys=256,
    mask="",
    dropout=0.0,
    calls_per_step=1.0,
    ms_per_step=3.0,
    timing=Missing("it was not replayed"),
)
RECURRENT = Recurrent("mkldnn_rnn_layer", "read", "LSTM", "float32", 1.0, 2.0, 0.0)
LIBRARY_USE = LibraryUse((CONVOLUTION,), (RECURRENT,), (ATTENTION,))
CUDNN = Cudnn(
    available=True,
    version=91900,
    error="",
    enabled=True,
    enabled_in_forward=True,
    benchmark=True,
    deterministic=False,
    shapes=ShapeVariety(sampled=100, distinct=2, late=0),
)
CUDA_MEMORY = CudaMemory(
    backend="native",
    caching=True,
    alloc_retries_per_step=0.0,
    device_allocs_per_step=0.0,
    peak_allocated_bytes=9 << 30,
    peak_reserved_bytes=10 << 30,
    total_bytes=80 << 30,
)

EVALUATIONS = Evaluations(
    count=2,
    every_steps=100.0,
    ms=100.0,
    share=0.04,
    training_ms=2_500.0,
    batches=8.0,
    forward_ms=60.0,
    wait_ms=20.0,
    start_ms=10.0,
    samples=32,
    training_samples=32,
    num_workers=0,
    persistent_workers=False,
    batch_at=Site("train.py", 13, "main"),
    iterated_at=Site("train.py", 60, "evaluate"),
    asked_at=Site("train.py", 44, "main"),
)
_JOB_PARTS = JobParts(start=50.0, imports=2_500.0, set_up=450.0, first_step=100.0, steady=5_250.0, evaluation=200.0)
ANATOMY = JobAnatomy(wall_ms=_JOB_PARTS.total, complete=True, stopped=True, parts=_JOB_PARTS, steps=211)

DEVICE_BOUND = DeviceTimeline(
    steps=28,
    parts=DeviceParts(input_wait=0.0, forward=8.0, backward=14.5, optimizer=2.0, other=0.5),
    idle_most_ms=0.2,
    ahead_low_ms=18.0,
    ahead_high_ms=20.0,
    busy_share=Missing("the operator window saw no kernels"),
)


ONE_THREAD = Concurrency(forwards=200)


def step(parts: Parts, **changes: Any) -> Step:
    """A steady step that is the sum of its parts, on one busy CPU."""
    whole = parts.total
    seen = Step(
        boundary="optimizer",
        count=200,
        seconds=0.2 * whole,
        warmup=5,
        windowed=8,
        irregular=0,
        irregular_s=0.0,
        irregular_ms=0.0,
        step_ms=whole,
        parts=parts,
        median_ms=whole,
        mad_ms=0.02 * whole,
        low_ms=0.98 * whole,
        high_ms=1.02 * whole,
        cpu_ms=whole - parts.input_wait,
        process_cpu_ms=whole - parts.input_wait,
        run_delay_ms=0.01 * whole,
        micro_batches=1.0,
        samples=32.0,
        first_step_s=2.4,
    )
    return replace(seen, **changes)


def healthy() -> Evidence:
    """25 ms on a CPU, with a loader that keeps up and everything measured."""
    return Evidence(
        rank=0,
        machine=MACHINE,
        job=JOB,
        step=step(Parts(input_wait=0.3, forward=8.0, backward=14.0, optimizer=2.0, gc=0.1, other=0.6)),
        loaders=(LOADER,),
        gc=GarbageCollection(
            ms_per_step=0.1,
            automatic_ms_per_step=0.1,
            per_step=(0.05, 0.005, 0.0),
            longest_pause_ms=0.4,
            full_collected=0.0,
            explicit=(),
            tracked_objects=170_000,
            enabled=True,
        ),
        memory=HostMemory(
            minor_faults=40.0,
            system_cpu_ms=0.3,
            user_cpu_ms=24.0,
            peak_rss_bytes=600 << 20,
            allocator="glibc",
            malloc_settings=(),
            eval_with_grad=None,
            empty_cache=(),
        ),
        cuda_memory=Missing("the job does not use CUDA"),
        ops=OpProfile(
            steps=3,
            ops=(
                Op("addmm", "float32", "[512] [32, 512] [512, 512]", 8.0, 14.0, 14.0, 1.3e8),
                Op("mm", "float32", "[512, 32] [32, 512]", 16.0, 6.0, 6.0, 2.6e8),
            ),
            ops_per_step=120.0,
            self_ms_per_step=22.0,
            self_ms_by_dtype=(("", 1.0), ("float32", 21.0)),
            thread_timings=(ThreadTiming(1, 4.0), ThreadTiming(2, 4.2), ThreadTiming(4, 4.4)),
            batch_timings=BATCH_TIMINGS,
        ),
        call_sites=(),
        repeated_work=(),
        metrics=(),
        unused_work=(),
        equivalents=(),
        derivatives=(),
        decoding=None,
        same_results=(),
        epoch_starts=None,
        subnormals=None,
        precision=Precision(
            default_dtype="float32",
            parameter_dtypes=(("float32", 1_000_000),),
            parameter_devices=("cpu",),
            autocast_dtype="",
            grad_scaler=False,
            bf16_native=True,
            fp16_native=False,
            compute_capability=None,
            tf32_matmul=None,
            batch_dtypes=("float32", "int64"),
        ),
        threads=Threads(
            intra_op=1,
            inter_op=2,
            launch_affinity_cpus=4,
            openmp_runtimes=("libgomp",),
            variables=(("OMP_NUM_THREADS", "1"),),
            torchrun_default=False,
        ),
        host=HOST,
        own_cost=OwnCost(8.0, 35.0, 100.0, 0.01, 0.01, 60.0),
        backend=BACKEND,
        layers=LAYERS,
        hot_lines=HOT_LINES,
        concurrency=ONE_THREAD,
        library_use=LIBRARY_USE,
        cudnn=Missing("the job does not use CUDA"),
        growth=StepGrowth(Trend(200, 25.0, 25.2, -0.02, 0.03, False, Parts(), 0.0)),
        checkpoints=Checkpoints(saves=1, steps=400, every=400.0, save_ms=8.0, most_ms=9.0, is_steady=False),
        anatomy=ANATOMY,
        evaluations=EVALUATIONS,
        logging=(LoggingLine("print", Site("train.py", 50, "main"), 0.02, 0.01),),
    )


def empty() -> Evidence:
    """A run in which nothing was measured."""
    known = {"rank": 0, "machine": MACHINE, "job": JOB, "probe_faults": ()}
    return Evidence(**known, **{f.name: NOT_SEEN for f in fields(Evidence) if f.name not in known})


def with_(evidence: T, **changes: Any) -> T:
    """A copy with other fields; `part__field` reaches into a part, `loader__field` into the first loader."""
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        part, _, rest = name.partition("__")
        if rest:
            nested.setdefault(part, {})[rest] = value
        else:
            plain[name] = value
    changed = replace(evidence, **plain) if plain else evidence
    for part, inner in nested.items():
        if part == "loader":
            first, *others = changed.loaders
            changed = replace(changed, loaders=(with_(first, **inner), *others))
        else:
            changed = replace(changed, **{part: with_(getattr(changed, part), **inner)})
    return changed


def on_gpu(evidence: Evidence | None = None, **changes: Any) -> Evidence:
    """The same on an H100: parameters on the device, which is busy for most of the step."""
    return with_(
        evidence or healthy(),
        **{
            "precision__parameter_devices": ("cuda:0",),
            "backend__cuda": "12.6",
            "backend__arch_list": ("sm_80", "sm_90"),
            "backend__parameters_by_device": (("cuda:0", 1_000_000),),
            "machine__gpus": (H100,),
            "machine__cuda_driver": (12, 8),
            "machine__gpu_nodes": 1,
            "host__gpus_in_use": (0,),
            "precision__compute_capability": (9, 0),
            "precision__tf32_matmul": True,
            "ops__device_busy_ms": 20.0,
            "cuda_memory": CUDA_MEMORY,
            "layers__on_device": True,
            "library_use": LibraryUse(
                (with_(CONVOLUTION, kernel="cudnn_convolution", choice=""),),
                (with_(RECURRENT, kernel="_cudnn_rnn"),),
                (ATTENTION,),
                on_device=True,
            ),
            "cudnn": CUDNN,
            **changes,
        },
    )


def asked(check: Check[Any]) -> tuple[Callable[[Evidence], Outcome], Callable[[Evidence], Finding]]:
    """What the check says of a run, by its own limits; and its one finding."""

    def examined(evidence: Evidence) -> Outcome:
        return check.examine(evidence, check.limits)

    def found(evidence: Evidence) -> Finding:
        return only(examined(evidence))

    return examined, found


def only(outcome: Outcome) -> Finding:
    """The one finding of an outcome."""
    assert outcome.kind is OutcomeKind.FOUND, outcome
    assert len(outcome.findings) == 1, [finding.id for finding in outcome.findings]
    return outcome.findings[0]


def is_clear(outcome: Outcome) -> bool:
    """Looked at and fine, with the numbers that say so."""
    assert outcome.kind is OutcomeKind.CLEAR, outcome
    return bool(outcome.measurements)


def ids(outcome: Outcome) -> list[str]:
    """The findings' ids, in the order of the check."""
    return [finding.id for finding in outcome.findings]


def number(outcome: Outcome | Finding, name: str) -> float:
    """The value of a measurement."""
    measurements = outcome.evidence if isinstance(outcome, Finding) else outcome.measurements
    return next(float(m.value) for m in measurements if m.name == name)
