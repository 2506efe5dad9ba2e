from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from recordings import (
    MACHINE,
    PID,
    WALL_US,
    batches,
    boundary,
    fetches,
    full_collection,
    loader,
    no_window,
    ops_window,
    process,
    sample,
    settings,
    site,
    sites_window,
    steps,
    torch,
    worker,
    worker_sample,
    write,
    write_run,
)

from perfdoctor.evidence.build import build
from perfdoctor.evidence.model import (
    CallSite,
    CudaMemory,
    DeviceWork,
    Evidence,
    Fetch,
    GarbageCollection,
    HostMemory,
    JobEnd,
    Missing,
    Op,
    OpProfile,
    OwnCost,
    Precision,
    ProbeFault,
    RunEvidence,
    Site,
    SparkResources,
    Step,
    Threads,
)
from perfdoctor.recording.host import HostRecording
from perfdoctor.recording.reader import read

N = 100


def _built(directory: Path, **facts: Any) -> RunEvidence:
    return build(read(write_run(directory, **facts)), MACHINE, HostRecording((), (), ()))


def _only(directory: Path, *records: dict[str, Any], **facts: Any) -> Evidence:
    write(directory, *records)
    (evidence,) = _built(directory, **facts).ranks
    return evidence


def _rank(directory: Path, rank: int, wall_us: int = WALL_US, world: int = 2) -> None:
    environment = {"RANK": str(rank), "WORLD_SIZE": str(world)}
    pid = PID + 10 * rank
    write(directory, process(pid), torch(environment=environment), steps(wall_us, N), pid=pid)


# ---------------------------------------------------------------------------------------------------------
# Who is who


def test_a_process_that_steps_is_a_rank_and_others_help(tmp_path: Path) -> None:
    write(tmp_path, torch(), steps(WALL_US, N))
    write(tmp_path, process(PID + 1), torch(), worker(0), pid=PID + 1)
    write(tmp_path, process(PID + 2), torch(), pid=PID + 2)  # torchrun's agent imports torch and trains nothing
    write(tmp_path, process(PID + 3), pid=PID + 3)
    run = _built(tmp_path)
    assert len(run.ranks) == 1
    job = run.ranks[0].job
    assert (job.local_ranks, job.workers, job.helpers) == (1, 1, 2)


def test_ranks_stand_in_their_order_and_the_slowest_is_known(tmp_path: Path) -> None:
    _rank(tmp_path, 1, 2 * WALL_US)
    _rank(tmp_path, 0)
    run = _built(tmp_path)
    assert [evidence.rank for evidence in run.ranks] == [0, 1]
    assert run.slowest.rank == 1
    assert (run.slowest.job.world_size, run.slowest.job.local_ranks) == (2, 2)


def test_a_worker_counts_to_the_rank_that_started_it(tmp_path: Path) -> None:
    for rank, getitem_us in ((0, 5_000), (1, 9_000)):
        pid = PID + 10 * rank
        write(
            tmp_path,
            process(pid),
            torch(environment={"RANK": str(rank), "WORLD_SIZE": "2"}),
            loader(num_workers=1),
            steps(WALL_US, N),
            batches(range(N), 0, depth=1),
            pid=pid,
        )
        child = pid + 1
        mine = (worker(0, ppid=pid), fetches([getitem_us] * 20), worker_sample(20, affinity=[0]))
        write(tmp_path, process(child, ppid=pid), *mine, pid=child)
    seen = []
    for evidence in _built(tmp_path).ranks:
        assert not isinstance(evidence.loaders, Missing)
        fetch = evidence.loaders[0].fetch
        assert isinstance(fetch, Fetch)
        seen.append(fetch.getitem_ms)
    assert seen == [pytest.approx(5.0), pytest.approx(9.0)]


@pytest.mark.parametrize(
    ("environment", "kind", "ranks"),
    [
        ({}, "batch", [PID + 1, PID + 2]),
        ({}, "forward", [PID + 1, PID + 2]),
        ({}, "backward", [PID, PID + 1, PID + 2]),
        # The launcher counted it.
        ({"RANK": "0", "WORLD_SIZE": "3"}, "batch", [PID, PID + 1, PID + 2]),
    ],
)
def test_a_parent_that_evaluates_while_others_train_is_no_rank(
    tmp_path: Path, environment: dict[str, str], kind: str, ranks: list[int]
) -> None:
    write(tmp_path, torch(environment=environment), boundary(kind), steps(WALL_US, N))
    for pid in (PID + 1, PID + 2):
        write(tmp_path, process(pid, PID), torch(), boundary("optimizer"), steps(WALL_US, N), pid=pid)
    recording = read(write_run(tmp_path))
    assert [process.header.pid for process in recording.ranks] == ranks
    job = _built(tmp_path).slowest.job
    assert (job.local_ranks, job.helpers) == (len(ranks), 3 - len(ranks))


def test_processes_that_only_evaluate_are_all_ranks(tmp_path: Path) -> None:
    for pid in (PID, PID + 1):
        write(tmp_path, process(pid), torch(), boundary("forward"), steps(WALL_US, N), pid=pid)
    assert len(read(write_run(tmp_path)).ranks) == 2


def test_a_rank_with_too_few_steps_says_so_everywhere(tmp_path: Path) -> None:
    evidence = _only(tmp_path, torch(), settings(), steps(WALL_US, 3))
    for name in ("step", "loaders", "gc", "memory", "cuda_memory", "own_cost"):
        value = getattr(evidence, name)
        assert isinstance(value, Missing)
        assert "too few steady steps: 2 of the 3 seen" in value.reason
    assert isinstance(evidence.precision, Precision)


def test_every_part_is_there_when_all_was_recorded(tmp_path: Path) -> None:
    evidence = _only(
        tmp_path,
        torch(),
        settings(hook_ns=800.0, start_ms=35.0),
        loader(),
        steps(WALL_US, N),
        batches(range(N), 0),
        fetches([100] * N),
        sample(10, minflt=100, stime_us=0, utime_us=0, events=0),
        sample(90, minflt=900, stime_us=8_000, utime_us=80_000, events=800, maxrss_kb=2048),
        ops_window(),
        sites_window(),
    )
    kinds = {
        "step": Step,
        "loaders": tuple,
        "gc": GarbageCollection,
        "memory": HostMemory,
        "ops": OpProfile,
        "call_sites": tuple,
        "precision": Precision,
        "threads": Threads,
        "own_cost": OwnCost,
    }
    for name, kind in kinds.items():
        assert isinstance(getattr(evidence, name), kind), name
    assert evidence.own_cost.hooks_us_per_step == pytest.approx(8.0)  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------
# Nobody


def _nobody(directory: Path) -> Evidence:
    (evidence,) = _built(directory).ranks
    for field in fields(Evidence):
        value = getattr(evidence, field.name)
        assert field.name in ("rank", "machine", "job", "probe_faults") or isinstance(value, Missing)
    return evidence


def test_a_job_without_python_says_what_keeps_the_probe_out(tmp_path: Path) -> None:
    step = _nobody(tmp_path).step
    assert isinstance(step, Missing)
    assert "-E, -I or -S" in step.reason


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "never imported torch"),
        ([{"k": "torch", "error": "ImportError: libcudart.so"}], "ImportError: libcudart.so"),
        ([torch()], "no training or inference step"),
    ],
)
def test_a_job_without_a_step_says_how_far_it_came(tmp_path: Path, records: list[Any], reason: str) -> None:
    write(tmp_path, *records)
    step = _nobody(tmp_path).step
    assert isinstance(step, Missing)
    assert reason in step.reason


@pytest.mark.parametrize(
    ("master", "executor", "reason"),
    [
        ("spark", [], "no executor of Spark's reported"),
        ("spark", [torch()], "no training or inference step"),
        ("local", [], "never imported torch"),
    ],
)
def test_executors_that_report_nothing_are_named(tmp_path: Path, master: str, executor: list[Any], reason: str) -> None:
    write(tmp_path, {"k": "spark", "master": master})
    write(tmp_path, *executor, pid=PID + 1)
    step = _nobody(tmp_path).step
    assert isinstance(step, Missing)
    assert reason in step.reason


def test_what_spark_gives_is_known_to_every_rank(tmp_path: Path) -> None:
    write(tmp_path, {"k": "spark", "master": "spark", "executor_gpus": 4.0, "task_gpus": 1.0}, pid=PID + 1)
    _rank(tmp_path, 0)
    _rank(tmp_path, 1)
    given = SparkResources("spark", executor_gpus=4.0, task_gpus=1.0)
    assert [evidence.spark for evidence in _built(tmp_path).ranks] == [given, given]


def test_faults_of_the_probe_are_kept_with_and_without_steps(tmp_path: Path) -> None:
    fault = {"k": "fault", "hook": "loader", "error": "AttributeError: x"}
    write(tmp_path, torch(), fault)
    assert _nobody(tmp_path).probe_faults == (ProbeFault("loader", "AttributeError: x"),)
    assert _only(tmp_path, torch(), fault, steps(WALL_US, N)).probe_faults == (
        ProbeFault("loader", "AttributeError: x"),
    )


# ---------------------------------------------------------------------------------------------------------
# The job


def test_the_job_is_what_the_launcher_and_its_first_rank_say(tmp_path: Path) -> None:
    evidence = _only(
        tmp_path,
        torch(cuda="12.6"),
        settings(frameworks=["lightning"], compiled=True),
        steps(WALL_US, N),
        end="stopped",
        environment={"OMP_NUM_THREADS": "4"},
        started="2026-11-20T23:50:00Z",
    )
    job = evidence.job
    assert (job.torch_version, job.torch_build, job.python_version) == ("2.13.0", "cu126", "3.11.7")
    assert (job.frameworks, job.compiled) == (("lightning",), True)
    assert job.environment == (("OMP_NUM_THREADS", "4"),)
    assert job.end == JobEnd("stopped")
    assert job.command == ("python", "train.py")


@pytest.mark.parametrize(
    ("said", "build_name"), [({}, "cpu"), ({"cuda": "13.0"}, "cu130"), ({"hip": "6.4"}, "rocm6.4")]
)
def test_the_build_of_torch_is_named_as_its_wheels_are(tmp_path: Path, said: dict[str, str], build_name: str) -> None:
    assert _only(tmp_path, torch(**said), steps(WALL_US, N)).job.torch_build == build_name


def test_what_the_reader_skipped_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path, torch(), steps(WALL_US, N))
    with path.open("a") as file:
        file.write('not a record\n{"k":"ste')
    notes = _built(tmp_path).notes
    assert any("not a record" in note for note in notes)
    assert any("cut" in note for note in notes)


# ---------------------------------------------------------------------------------------------------------
# Memory, operators, types, threads


def test_page_faults_and_allocator_settings_are_per_step(tmp_path: Path) -> None:
    memory = _only(
        tmp_path,
        settings(allocator="jemalloc", environment={"MALLOC_CONF": "x", "OMP_NUM_THREADS": "1"}),
        steps(WALL_US, N),
        sample(10, minflt=1_000, stime_us=0, utime_us=0, maxrss_kb=2048),
        sample(90, minflt=81_000, stime_us=80_000, utime_us=240_000, maxrss_kb=2048),
    ).memory
    assert isinstance(memory, HostMemory)
    assert (memory.minor_faults, memory.system_cpu_ms) == (pytest.approx(1000), pytest.approx(1.0))
    assert memory.system_share == pytest.approx(0.25)
    assert (memory.allocator, memory.malloc_settings) == ("jemalloc", (("MALLOC_CONF", "x"),))
    assert memory.peak_rss_bytes == 2048 * 1024


@pytest.mark.parametrize(("grown_kb", "faults"), [(0, 1000.0), (160_000, 500.0), (320_000, 0.0), (900_000, 0.0)])
def test_pages_by_which_the_process_grows_are_not_given_back(tmp_path: Path, grown_kb: int, faults: float) -> None:
    memory = _only(
        tmp_path,
        settings(),
        steps(WALL_US, N),
        sample(10, minflt=1_000, stime_us=0, utime_us=0, maxrss_kb=500_000),
        sample(90, minflt=81_000, stime_us=80_000, utime_us=240_000, maxrss_kb=500_000 + grown_kb),
    ).memory
    assert isinstance(memory, HostMemory)
    assert memory.minor_faults == pytest.approx(faults)


def test_useless_graphs_and_emptied_caches_have_their_lines(tmp_path: Path) -> None:
    memory = _only(
        tmp_path,
        settings(),
        site(1, 70),
        site(2, 61),
        steps(WALL_US, 101),
        sample(10),
        sample(90),
        {"k": "eval_with_grad", "step": 0, "site": 1, "count": 9, "us": 900_000},  # before the warm-up's end
        {"k": "eval_with_grad", "step": 50, "site": 1, "count": 4, "us": 200_000},
        {"k": "call", "kind": "empty_cache", "site": 2, "count": 9, "us": 900_000, "step": 0},
        {"k": "call", "kind": "empty_cache", "site": 2, "count": 100, "us": 50_000, "step": 100},
        {"k": "call", "kind": "checkpoint", "site": 2, "count": 1, "us": 50_000, "step": 100},
    ).memory
    assert isinstance(memory, HostMemory)
    assert memory.eval_with_grad is not None
    assert (memory.eval_with_grad.site, memory.eval_with_grad.forwards) == (Site("train.py", 70, "main"), 4)
    assert memory.eval_with_grad.forward_ms == pytest.approx(2.0)
    assert memory.empty_cache == (CallSite("empty_cache", Site("train.py", 61, "main"), 1.0, 0.5),)


def test_cuda_counters_are_growth_over_the_span(tmp_path: Path) -> None:
    device = {"total_bytes": 80 << 30, "allocator": "native"}
    before = {"alloc_retries": 5, "device_allocs": 100, "peak_allocated_bytes": 0, "peak_reserved_bytes": 0}
    after = {"alloc_retries": 13, "device_allocs": 180, "peak_allocated_bytes": 6, "peak_reserved_bytes": 10}
    evidence = _only(
        tmp_path,
        settings({"compute_capability": [9, 0]}, cuda=device, environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
        steps(WALL_US, N),
        sample(10, cuda=before),
        sample(90, cuda=after),
    )
    memory = evidence.cuda_memory
    assert isinstance(memory, CudaMemory)
    assert (memory.alloc_retries_per_step, memory.device_allocs_per_step) == (pytest.approx(0.1), pytest.approx(1.0))
    assert memory.fragmentation == pytest.approx(0.4)
    assert not memory.caching
    assert isinstance(evidence.precision, Precision)
    assert evidence.precision.compute_capability == (9, 0)


def test_the_operator_window_is_read_as_it_is(tmp_path: Path) -> None:
    row = {
        "name": "mm",
        "dtype": "float64",
        "shapes": "[64, 256] [256, 8]",
        "calls_per_step": 2.0,
        "flops_per_step": 2e6,
    }
    window = ops_window(
        ops=[{**row, "self_ms_per_step": 1.0, "total_ms_per_step": 1.5}],
        self_ms_per_step=3.0,
        self_ms_by_dtype=[["float32", 2.0], ["float64", 1.0]],
        device_busy_ms=3.0,
        device_copies_ms=0.6,
        pageable_copies_ms=0.5,
        pauses_ms=0.35,
        devices=[{"index": 0, "busy_ms": 2.0}, {"index": 1, "busy_ms": 1.5}],
        stray_ms=0.25,
    )
    ops = _only(tmp_path, steps(WALL_US, N), window).ops
    assert isinstance(ops, OpProfile)
    assert ops.ops == (Op("mm", "float64", "[64, 256] [256, 8]", 2.0, 1.0, 1.5, 2e6),)
    assert ops.self_ms_per_step == pytest.approx(3.0)
    assert ops.self_ms("float64") == pytest.approx(1.0)
    assert (ops.device_busy_ms, ops.device_copies_ms, ops.pageable_copies_ms) == (3.0, 0.6, 0.5)
    assert (ops.pauses_ms, ops.stray_ms) == (0.35, 0.25)
    assert ops.devices == (DeviceWork(0, 2.0), DeviceWork(1, 1.5))


@pytest.mark.parametrize("name", ["ops", "sites"])
def test_a_window_that_could_not_open_says_why(tmp_path: Path, name: str) -> None:
    evidence = _only(tmp_path, steps(WALL_US, N), no_window(name, "the job runs a profiler of its own"))
    missing = evidence.ops if name == "ops" else evidence.call_sites
    assert isinstance(missing, Missing)
    assert "a profiler of its own" in missing.reason
    other = evidence.call_sites if name == "ops" else evidence.ops
    assert isinstance(other, Missing)
    assert "not reached" in other.reason


def test_the_costliest_line_of_the_call_site_window_comes_first(tmp_path: Path) -> None:
    calls = [
        {"kind": "item", "site": 1, "calls_per_step": 1.0, "ms_per_step": 0.05},
        {"kind": "convert", "site": 2, "calls_per_step": 2.0, "ms_per_step": 0.45, "detail": "float32->float64"},
    ]
    window = sites_window(calls=calls)
    found = _only(tmp_path, torch(), site(1, 5), site(2, 6), steps(WALL_US, N), window).call_sites
    assert not isinstance(found, Missing)
    assert [(call.kind, call.site.line, call.calls_per_step, call.ms_per_step) for call in found] == [
        ("convert", 6, 2.0, pytest.approx(0.45)),
        ("item", 5, 1.0, pytest.approx(0.05)),
    ]


@pytest.mark.parametrize(
    ("seen", "launch", "by_torchrun"),
    [
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x"}, {}, True),
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x"}, {"OMP_NUM_THREADS": "1"}, False),
        ({"OMP_NUM_THREADS": "1"}, {}, False),
        ({"TORCHELASTIC_RUN_ID": "x"}, {}, False),
    ],
)
def test_torchruns_single_thread_is_told_from_the_users(
    tmp_path: Path, seen: dict[str, str], launch: dict[str, str], by_torchrun: bool
) -> None:
    threads = _only(tmp_path, settings(environment=seen), steps(WALL_US, N), environment=launch).threads
    assert isinstance(threads, Threads)
    assert threads.torchrun_default is by_torchrun


@pytest.mark.parametrize("scaler_site", [None, -1, 1])
def test_a_gradient_scaler_may_have_no_line(tmp_path: Path, scaler_site: int | None) -> None:
    facts = settings({"grad_scaler": scaler_site is not None, "grad_scaler_site": scaler_site})
    precision = _only(tmp_path, torch(), site(1, 9), facts, steps(WALL_US, N)).precision
    assert isinstance(precision, Precision)
    assert precision.grad_scaler is (scaler_site is not None)
    assert (precision.grad_scaler_site is not None) is (scaler_site == 1)


def test_without_settings_types_and_threads_are_missing(tmp_path: Path) -> None:
    evidence = _only(tmp_path, steps(WALL_US, N), full_collection(1, 1))
    assert isinstance(evidence.precision, Missing)
    assert isinstance(evidence.threads, Missing)
    assert isinstance(evidence.memory, Missing)
