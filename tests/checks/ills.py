"""One ill run for every finding that the built-in checks can make; the tests of each check and the contract use it."""

from __future__ import annotations

from ill_runs.aside import metric, unused
from ill_runs.backend import beside_a_gpu, reference_blas, without_onednn
from ill_runs.batch_size import batch_timings, mixed, padded, small_batch
from ill_runs.checkpoints import checkpoints
from ill_runs.communication import by_turns, collecting, late, late_node, pipeline, reducing, sharding
from ill_runs.compile import BREAKS, SIZES, compiled, recompiling, to_its_end, uncompiled
from ill_runs.cpu_ops import (
    anomaly_detection,
    device_sync,
    element_loop,
    list_conversion,
    python_work,
    round_trip,
    scalar_reads,
    sequential_loop,
)
from ill_runs.cudnn import channels_first, convolving_on_gpu, half_on_gpu, onednn_off_inside, scattered, unfused
from ill_runs.debugging import (
    asserting,
    debug_allocator,
    default_device,
    deterministic,
    mode_left_on,
    profiled,
    searched,
    tracing,
)
from ill_runs.discarded_gradients import discarded
from ill_runs.dtype import bfloat16_beside, conversions, faded, idle_tensor_cores, needless_scaler, slow_type
from ill_runs.equivalents import otherwise
from ill_runs.etl import (
    collecting_workers,
    crowding_workers,
    fetch,
    looping,
    made_again,
    made_each_epoch,
    pageable_copies,
    restarted_workers,
    same_result,
    sharded_late,
    slow_sampler,
    uneven_batches,
    waiting,
)
from ill_runs.evaluation_and_logging import (
    evaluating,
    logging_loop,
    metrics_by_sample,
    outputs_joined,
    scored_in_python,
    small_evaluation_batches,
    small_passes,
    written_without_cache,
)
from ill_runs.gc import automatic_collections, explicit_collections
from ill_runs.growth import (
    deeper_graph,
    growing,
    growing_file,
    growing_hooks,
    growing_tensor,
    repeated_hooks,
    slowed,
    slower_loader,
)
from ill_runs.network import convolution, dense_embedding, memory_bound, time_loop, too_wide, unused_outputs, wide_head
from ill_runs.omp_threads import pinned_workers, timed_threads
from ill_runs.optimizer import (
    clipping,
    derived_one_by_one,
    parameter_loop,
    slow_update,
    state_copies,
    stepped_schedule,
    zeroed,
)
from ill_runs.other_processes import asks_a_program, crowded, polled, pool_for_each_batch, shared_gpu, throttled
from ill_runs.repeated_work import computed_again, repeated, unchanged
from ill_runs.shared_model import (
    actors_behind_a_lock,
    behind_a_lock,
    graphs_in_threads,
    handing_over,
    polling,
    serving,
    with_teams,
)
from ill_runs.traced import LOOP, traced
from ill_runs.unused_gradients import without_optimizer
from ill_runs.vector_extensions import limited, masked
from ill_runs.workspaces import (
    checkpointed,
    churn,
    cuda_allocator,
    emptied_cache,
    graph_in_evaluation,
    unused_gradients,
)
from samples import H100, healthy, on_gpu, with_

from perfdoctor.evidence.model import Called, Evidence, Idle, Missing, PciGpu, ShapeVariety, SparkResources

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
    "PD01.spark-idle-gpus": on_gpu(spark=SparkResources("spark", executor_gpus=4, task_gpus=2, executor_cores=8)),
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
    "PD02.channels-last": channels_first(saved=10.0),
    "PD02.rnn-weights-scattered": scattered(),
    "PD03.too-few-workers": waiting(20.0, fetch((19.0, 1.0)), train_ms=10.0, num_workers=0),
    "PD03.storage": waiting(14.6, fetch((60.0, 1.0)), num_workers=16),
    "PD03.transform": looping(),
    "PD03.same-result": same_result(),
    "PD03.samples-made-again": made_again(),
    "PD03.same-each-epoch": made_each_epoch(),
    "PD03.discarded-samples": sharded_late(),
    "PD03.crowded-training": crowding_workers(),
    "PD03.collate": waiting(10.3, fetch((0.01, 0.01), (15.0, 13.0)), empty_share=0.72),
    "PD03.worker-collections": collecting_workers(),
    "PD03.uneven-batches": uneven_batches(),
    "PD03.per-sample-indexing": waiting(2.0, fetch((1.2, 1.2), (0.7, 0.7)), num_workers=0, batch_size=256),
    "PD03.no-cpu-left": waiting(30.0, fetch((25.0, 4.0), run_delay_ms=21.0)),
    "PD03.needless-workers": waiting(2.0, fetch(), empty_share=0.0, transport_ms=0.9),
    "PD03.transport": waiting(
        40.0, fetch((20.0, 20.0)), empty_share=0.0, transport_ms=38.0, transport_bytes=18_000.0, num_workers=4
    ),
    "PD03.iterator-rebuilt": waiting(
        57.0, fetch(), num_workers=0, iterators=200, iterator_start_ms=57.0, batches_per_iterator=1.0
    ),
    "PD03.input-wait": waiting(10.0, Missing("no batch was timed where it is made (workers seen: {0} of 2)")),
    "PD03.slow-sampler": slow_sampler(),
    "PD03.workers-restarted": restarted_workers(),
    "PD03.pageable-copies": pageable_copies(),
    "PD04.explicit-collect": explicit_collections(),
    "PD04.automatic-collections": automatic_collections(),
    "PD05.mergeable-accumulation": small_batch(step__samples=32.0, loader__steady_batches_per_step=8.0),
    "PD05.padded-batches": padded(),
    "PD05.mixed-lengths": mixed(),
    "PD05.batch-too-small": small_batch(),
    "PD05.batch-too-large": small_batch(1.0, 256.0, ops__batch_timings=batch_timings(1.0, quarter=0.1)),
    "PD06.gil-bound-forwards": serving(),
    "PD06.serialised-forwards": behind_a_lock(),
    "PD06.threads-in-forward": handing_over(),
    "PD06.busy-waiting": polling(),
    "PD06.waits-for-lock": actors_behind_a_lock(),
    "PD06.oversubscribed-teams": with_teams(),
    "PD06.grad-in-threads": graphs_in_threads(),
    "PD07.float64": slow_type("float64"),
    "PD07.float16-emulated": slow_type("float16", ratio=180.0),
    "PD07.bfloat16-emulated": slow_type("bfloat16", ratio=40.0, precision__bf16_native=False),
    "PD07.bfloat16-unused": bfloat16_beside(),
    "PD07.tensor-cores-unused": idle_tensor_cores(),
    "PD07.needless-grad-scaler": needless_scaler(),
    "PD07.conversions": conversions(),
    "PD07.subnormal-numbers": faded(),
    "PD08.allocator-churn": churn(),
    "PD08.empty-cache": emptied_cache(),
    "PD08.grad-in-evaluation": graph_in_evaluation(),
    "PD08.caching-disabled": cuda_allocator(caching=False, device_allocs_per_step=40.0),
    "PD08.fragmentation": cuda_allocator(
        alloc_retries_per_step=0.2, device_allocs_per_step=4.0, peak_allocated_bytes=5 << 30
    ),
    "PD08.alloc-retries": cuda_allocator(alloc_retries_per_step=0.2, device_allocs_per_step=4.0),
    "PD09.oversized-layer": too_wide(),
    "PD09.dominant-convolution": convolution(),
    "PD09.unused-outputs": unused_outputs(),
    "PD09.oversized-head": wide_head(),
    "PD09.memory-bound-layer": memory_bound(),
    "PD09.dense-embedding-gradient": dense_embedding(),
    "PD08.needless-checkpointing": checkpointed(),
    "PD08.unused-gradients": unused_gradients(),
    "PD09.time-loop": time_loop(),
    "PD10.element-loop": element_loop(),
    "PD10.sequential-loop": sequential_loop("state"),
    "PD10.scalar-reads": scalar_reads(),
    "PD10.device-sync": device_sync(),
    "PD14.frequent-checkpoints": checkpoints(),
    "PD15.growing-container": growing(),
    "PD15.growing-file": growing_file(),
    "PD15.growing-graph": deeper_graph(),
    "PD15.growing-hooks": growing_hooks(),
    "PD15.repeated-hooks": repeated_hooks(),
    "PD15.growing-tensor": growing_tensor(),
    "PD15.cuda-fragmentation": slowed("cuda-fragmentation", 0.1, 8.0, least_ms=1.6, beside=(2e8, 6e9)),
    "PD15.gpu-clock": slowed("gpu-clock", 1980.0, 1100.0, beside=(62.0, 88.0)),
    "PD15.lower-clock": slowed("lower-clock", 3400.0, 2000.0),
    "PD15.page-faults": slowed("page-faults", 100.0, 9000.0),
    "PD15.slower-loader": slower_loader(),
    "PD15.swapping": slowed(),
    "PD15.throttled": slowed("throttled"),
    "PD16.anomaly-detection": anomaly_detection(),
    "PD16.profiler-left-on": profiled(),
    "PD16.deterministic-algorithms": deterministic(),
    "PD16.tested-tensors": asserting(),
    "PD16.searched-modules": searched(),
    "PD16.traced-allocations": tracing(),
    "PD16.debugging-allocator": debug_allocator(),
    "PD16.default-device": default_device(),
    "PD16.mode-left-on": mode_left_on(),
    "PD17.derivatives-one-by-one": derived_one_by_one(),
    "PD17.discarded-gradients": discarded(),
    "PD17.slow-update": slow_update(),
    "PD17.state-copies": state_copies(),
    "PD17.parameter-loop": clipping(),
    "PD17.parameter-reads": parameter_loop(reads=120.0),
    "PD17.zeroed-gradients": zeroed(),
    "PD17.schedule-steps": stepped_schedule(),
    "PD17.gradients-without-optimizer": without_optimizer(),
    "PD18.recompiles": recompiling(),
    "PD18.not-compiled": uncompiled(),
    "PD18.slower-than-eager": compiled(eager_ms=18.0),
    "PD18.does-not-pay-off": to_its_end(steps=500, seconds=12.0),
    "PD18.graph-breaks": compiled(breaks=BREAKS),
    "PD18.given-up": compiled(given_up=(SIZES,)),
    "PD10.round-trip": round_trip(),
    "PD10.list-conversion": list_conversion(),
    "PD10.python-work": python_work(),
    "PD10.repeated-work": repeated(),
    "PD10.unused-work": unused(),
    "PD10.product-order": otherwise(),
    "PD10.empty-product": otherwise("one-hot"),
    "PD10.broadcast-then-sum": otherwise("distance"),
    "PD10.whole-sort": otherwise("top"),
    "PD10.ignored-scores": otherwise("ignored"),
    "PD10.enlarged-first": otherwise("enlarged"),
    "PD10.grown-by-cat": otherwise("grown"),
    "PD10.unchanged-work": unchanged(),
    "PD10.same-result": computed_again(),
    "PD11.capped-by-environment": limited(),
    "PD11.masked-by-hypervisor": masked(),
    "PD12.cpu-contention": crowded(),
    "PD12.throttled": throttled(),
    "PD12.steal": with_(healthy(), host__steal_share=0.3),
    "PD12.memory-pressure": with_(
        healthy(), host__memory_pressure_share=0.3, step__cpu_ms=14.0, host__swap_in_bytes=1e8, host__seconds=5.0
    ),
    "PD12.busy-helper": polled(),
    "PD12.started-each-step": pool_for_each_batch(),
    "PD12.programs-in-loop": asks_a_program(),
    "PD12.gpu-shared": shared_gpu(),
    "PD12.gpu-throttled": on_gpu(host__gpu_throttled_share=0.9, host__gpu_throttled_clock=0.5),
    "PD13.too-many-threads": timed_threads(16, {1: 10.0, 2: 6.0, 16: 12.0}),
    "PD13.idle-cpus": timed_threads(1, {1: 10.0, 2: 6.0}),
    "PD13.torchrun-single-thread": timed_threads(
        1, {1: 10.0, 4: 3.0}, cpus=8, threads__torchrun_default=True, job__local_ranks=2, job__world_size=2
    ),
    "PD13.more-threads-than-quota": timed_threads(
        48, {1: 10.0, 2: 6.0, 48: 90.0}, cpus=48, machine__quota_cpus=2.0, host__throttled_share=0.6
    ),
    "PD13.spin-collapse": timed_threads(2, {1: 10.0, 2: 310.0}, host__job_run_delay_share=0.4, host__others_cpus=1.0),
    "PD13.workers-pinned": pinned_workers(),
    "PD19.late-rank": late(),
    "PD19.late-node": late_node(),
    "PD19.late-by-turns": by_turns(),
    "PD19.small-shards": sharding(),
    "PD19.pipeline-bubble": pipeline(),
    "PD19.accumulation-without-no-sync": collecting("gradients_again", site=None, calls_per_step=3.0),
    "PD19.small-buckets": reducing(bucket_bytes=(66_048,) * 60),
    "PD19.buffers-broadcast": collecting("buffers"),
    "PD19.find-unused-parameters": with_(
        collecting("search", site=None), communication__exposed_ms=0.5, step=healthy().step
    ),
    "PD19.barrier-in-step": collecting("barrier"),
    "PD19.objects-in-step": collecting("all_gather_object"),
    "PD19.reduced-metric": collecting("all_reduce_scalar"),
    "PD19.collectives-one-by-one": collecting("all_reduce", calls_per_step=60.0),
    "PD19.exposed-communication": reducing(),
    "PD20.logging": logging_loop(),
    "PD20.small-evaluation-batches": small_evaluation_batches(),
    "PD20.metrics-in-each-step": metric(),
    "PD20.metrics-in-python": scored_in_python(),
    "PD20.outputs-kept": outputs_joined(),
    "PD20.metrics-sample-by-sample": metrics_by_sample(),
    "PD20.evaluation-too-often": evaluating(),
    "PD20.small-passes": small_passes(),
    "PD20.decoding-without-cache": written_without_cache(),
    # Of traces.
    "PD02.layout-kernels": traced(activity__layouts_ms=12.0),
    "PD03.waiting-for-data": traced({Idle.INPUT: 33.0}),
    "PD08.device-allocations": traced({Idle.ALLOCATOR: 40.0}, activity__allocator=Called("cudaFree", 50.0, 45.0)),
    "PD09.unfused-kernels": traced(activity__elementwise_ms=45.0),
    "PD10.idle-device": traced({Idle.OTHER: 20.0}),
    "PD10.launch-bound": traced({Idle.LAUNCHING: 30.0}),
    "PD17.update-by-tensor": traced({Idle.OPTIMIZER: 8.0}, activity__optimizer=LOOP),
}
"""Finding id -> a run that has it, and for its check nothing else."""
