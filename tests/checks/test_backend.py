from __future__ import annotations

from typing import Any

import pytest
from ill_runs.backend import beside_a_gpu, reference_blas, without_onednn
from ills import ILL
from perfdoctor.checks.backend import CHECK
from perfdoctor.checks.backend.unused_gpu import is_supported
from samples import H100, asked, healthy, ids, is_clear, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Severity
from perfdoctor.diagnosis.outcomes import Outcome, OutcomeKind
from perfdoctor.evidence.model import LayerProfile, Missing, PciGpu, Site, SparkResources
from perfdoctor.report import wording

_examined, _found = asked(CHECK)


def _text(outcome: Outcome) -> str:
    return wording.fill_reason(outcome.reason, outcome.measurements)


def test_a_clear_outcome_is_the_line_that_the_guide_looks_for() -> None:
    assert _text(_examined(healthy())) == (
        "backend used: cpu, torch 2.13.0, BLAS mkl, oneDNN on, vector extensions AVX512, intra-op threads: 1"
    )
    assert "cuda:0 (NVIDIA H100 80GB HBM3)" in _text(_examined(on_gpu()))


@pytest.mark.parametrize("part", ["step", "backend"])
def test_without_steps_or_settings_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# A GPU that is not used


def test_a_cpu_build_beside_a_gpu_names_the_wheel_that_the_driver_runs() -> None:
    finding = _found(ILL["PD01.cpu-only-build"])
    assert "whl/cu126" in finding.fix.code
    assert finding.confidence is Confidence.LOW
    newer = _found(beside_a_gpu(backend__cuda="", machine__cuda_driver=(13, 0)))
    assert "whl/cu130" in newer.fix.code


def test_what_a_gpu_would_give_is_a_range_within_the_computing_part() -> None:
    evidence = ILL["PD01.model-on-cpu"]
    saved = _found(evidence).savings
    assert saved.ceiling_ms == pytest.approx(24.0)  # forward, backward and optimizer
    assert 0.5 * 24 < saved.low_ms < saved.high_ms < 24
    assert "not measured" in saved.method


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_gpus_are_a_choice(value: str) -> None:
    outcome = _examined(beside_a_gpu(backend__variables=(("CUDA_VISIBLE_DEVICES", value),)))
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE
    assert "on purpose" in outcome.reason


def test_a_choice_of_one_gpu_is_not_a_choice_of_none() -> None:
    assert _found(beside_a_gpu(backend__variables=(("CUDA_VISIBLE_DEVICES", "0"),))).id == "PD01.model-on-cpu"


@pytest.mark.parametrize(("flops", "count"), [(0.9e9, 0), (1.1e9, 1)])
def test_a_tiny_step_may_be_faster_on_the_cpu(flops: float, count: int) -> None:
    outcome = _examined(beside_a_gpu(flops))
    assert len(outcome.findings) == count
    assert count or "do not need it" in _text(outcome)


def test_without_operators_an_unused_gpu_is_an_open_question() -> None:
    outcome = _examined(with_(beside_a_gpu(), ops=Missing("the window was not reached")))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "H100" in outcome.reason


@pytest.mark.parametrize(("driver", "finding"), [("", "PD01.no-driver"), ("nouveau", "PD01.no-driver")])
def test_a_gpu_on_the_bus_without_its_driver_is_found(driver: str, finding: str) -> None:
    evidence = beside_a_gpu(
        machine__gpus=(), machine__gpu_nodes=0, machine__pci_gpus=(PciGpu("nvidia", "0x2330", driver),)
    )
    assert _found(evidence).id == finding


def test_a_gpu_that_this_container_does_not_get_is_said_and_not_blamed() -> None:
    evidence = beside_a_gpu(machine__gpus=(), machine__gpu_nodes=0)
    assert is_clear(_examined(evidence))
    assert "not handed to this container" in _text(_examined(evidence))


def test_a_gpu_that_belongs_to_a_virtual_machine_is_none_of_ours() -> None:
    card = (PciGpu("nvidia", "0x2330", "vfio-pci"),)
    evidence = beside_a_gpu(machine__gpus=(), machine__gpu_nodes=0, machine__pci_gpus=card)
    assert "container" not in _text(_examined(evidence))


def test_an_older_minor_version_of_the_driver_is_compatible() -> None:
    assert _found(beside_a_gpu(machine__cuda_driver=(12, 2))).id == "PD01.model-on-cpu"


def test_an_integrated_intel_gpu_is_no_matter_to_a_build_that_cannot_use_it() -> None:
    assert is_clear(_examined(with_(healthy(), machine__pci_gpus=(PciGpu("intel", "0x46a6", "i915"),))))


def test_a_macs_gpu_is_found_with_its_own_device() -> None:
    finding = _found(
        beside_a_gpu(backend__mps_available=True, machine__gpus=(), machine__gpu_nodes=0, machine__pci_gpus=())
    )
    assert finding.id == "PD01.accelerator-unused"
    assert "'mps'" in finding.fix.code


@pytest.mark.parametrize(
    ("capability", "architectures", "supported"),
    [
        ((9, 0), ("sm_80", "sm_90"), True),
        ((8, 6), ("sm_80",), True),
        ((7, 0), ("sm_75", "sm_80"), False),
        ((12, 0), ("sm_90", "compute_90"), True),
        ((12, 0), ("sm_90",), False),
        ((9, 0), ("sm_90a",), True),
        ((10, 0), ("sm_100", "gfx90a"), True),
    ],
)
def test_machine_code_serves_its_major_version_and_ptx_all_later_ones(
    capability: tuple[int, int], architectures: tuple[str, ...], supported: bool
) -> None:
    assert is_supported(capability, architectures) is supported


# ---------------------------------------------------------------------------------------------------------
# On a GPU


def test_parameters_on_both_sides_count_by_the_time_the_gpu_stands_idle() -> None:
    finding = _found(ILL["PD01.part-on-cpu"])
    assert finding.savings.low_ms == 0
    busy = with_(ILL["PD01.part-on-cpu"], ops__device_busy_ms=24.0)
    assert is_clear(_examined(busy))


@pytest.mark.parametrize(
    ("name", "line"),
    [("PD01.model-on-cpu", 9), ("PD01.part-on-cpu", 9), ("PD01.data-parallel", 9), ("PD01.cpu-only-build", None)],
)
def test_the_line_is_the_one_that_makes_the_model_unless_the_installation_is_wrong(name: str, line: int | None) -> None:
    layers = healthy().layers
    assert isinstance(layers, LayerProfile)
    model = with_(layers.layers[0], name="", order=-1, made_at=Site("train.py", 9, "main"))
    location = _found(with_(ILL[name], layers=with_(layers, layers=(model, *layers.layers)))).location
    assert (location and location.line) == line


def test_idle_gpus_are_a_note_without_a_prediction() -> None:
    finding = _found(ILL["PD01.idle-gpus"])
    assert finding.severity is Severity.NOTE
    assert finding.savings.high_ms == 0
    assert "--nproc-per-node 4" in finding.fix.code


@pytest.mark.parametrize(
    "changes",
    [
        {"backend__variables": (("CUDA_VISIBLE_DEVICES", "0"),)},
        {"job__world_size": 4},
        {"host__gpus_in_use": (0, 1)},
        {"host": Missing("not sampled")},
    ],
)
def test_gpus_are_left_alone_by_choice(changes: dict[str, object]) -> None:
    assert is_clear(_examined(with_(on_gpu(host__gpus_idle=(1, 2)), **changes)))


def test_data_parallel_on_one_gpu_passes_through() -> None:
    assert is_clear(_examined(on_gpu(backend__data_parallel=True)))


# ---------------------------------------------------------------------------------------------------------
# The CPU's libraries


def test_onednn_off_costs_what_was_timed() -> None:
    finding = _found(without_onednn(0.8, 3.4))
    assert finding.confidence is Confidence.HIGH
    assert "enabled=True" in finding.fix.code
    assert finding.savings.high_ms == pytest.approx(0.8 * 22 * (1 - 0.85 / 3.4), rel=0.01)


def test_onednn_that_a_line_switched_off_is_found_there() -> None:
    assert _found(without_onednn(0.8, 3.4)).location is None
    finding = _found(with_(without_onednn(0.8, 3.4), backend__onednn_off_at=Site("train.py", 18, "main")))
    assert finding.location == Location("train.py", 18, "main")


@pytest.mark.parametrize(("part", "count"), [(0.05, 0), (0.10, 1)])
def test_onednn_off_counts_by_its_share(part: float, count: int) -> None:
    assert len(_examined(without_onednn(part)).findings) == count


def test_onednn_off_without_effect_is_clear() -> None:
    assert is_clear(_examined(without_onednn(0.8, 1.0)))
    assert is_clear(_examined(with_(healthy(), backend__onednn_enabled=False)))


def test_native_convolutions_without_a_timing_are_estimated_with_low_confidence() -> None:
    finding = _found(without_onednn(0.8, None))
    assert finding.confidence is Confidence.LOW
    assert "not timed" in finding.savings.method


def test_a_switch_inside_the_forward_is_another_checks_finding() -> None:
    inside = _examined(without_onednn(0.8, 3.4, backend__onednn_between_steps=True))
    assert is_clear(inside)
    assert "see PD02" in _text(inside)
    assert "see PD02" not in _text(_examined(without_onednn(0.8, 1.0)))


@pytest.mark.parametrize(("gflops", "count"), [(7.5, 1), (8.5, 0)])
def test_a_slow_blas_is_told_by_its_rate(gflops: float, count: int) -> None:
    assert len(_examined(reference_blas(gflops)).findings) == count


@pytest.mark.parametrize("changes", [{"backend__blas": "open"}, {"backend__acl": True}])
def test_slow_products_of_a_good_library_have_another_cause(changes: dict[str, object]) -> None:
    assert is_clear(_examined(reference_blas(1.5, **changes)))


def test_a_job_can_have_the_wrong_device_and_a_library_switched_off() -> None:
    both = with_(
        without_onednn(),
        machine__gpus=(H100,),
        machine__cuda_driver=(12, 8),
        backend__cuda="12.6",
        ops__ops=tuple(with_(op, flops_per_step=4e10) for op in without_onednn().ops.ops),  # type: ignore[union-attr]
    )
    assert ids(_examined(both)) == ["PD01.model-on-cpu", "PD01.onednn-off"]


# ---------------------------------------------------------------------------------------------------------
# Under Spark


def _under_spark(executor_gpus: float | None, task_gpus: float | None, **more: Any) -> SparkResources:
    return SparkResources("spark", executor_gpus, task_gpus, **more)


@pytest.mark.parametrize(
    ("spark", "reserved", "used"),
    [
        (_under_spark(4, 2), 4, 2),  # two tasks, and a rank trains on one GPU
        (_under_spark(4, 1, executor_cores=2), 4, 2),
        (_under_spark(4, 1, executor_cores=8, task_cpus=4), 4, 2),
        (_under_spark(2, 4, executor_cores=8), 2, 0),  # no task fits
        (_under_spark(2, 0.25, executor_cores=2), 2, 1),  # both share one
    ],
)
def test_gpus_that_spark_reserves_and_no_task_uses(spark: SparkResources, reserved: int, used: int) -> None:
    finding = _found(on_gpu(spark=spark))
    assert finding.id == "PD01.spark-idle-gpus"
    assert finding.severity is Severity.NOTE, "a setting of the cluster's, not a measured cost"
    values = {measurement.name: measurement.value for measurement in finding.evidence}
    assert (values["reserved"], values["used"]) == (reserved, used)
    assert finding.savings.high_ms == 0.0
    assert finding.savings.ceiling_ms == pytest.approx(24.0 * (1 - used / reserved))


@pytest.mark.parametrize(
    "spark",
    [
        _under_spark(4, 1),
        _under_spark(4, 1, executor_cores=4),
        _under_spark(1, 0.5, executor_cores=2),
        _under_spark(None, None, executor_cores=2),
        _under_spark(4, None),  # nothing says how many tasks fit
        SparkResources("local", executor_gpus=4, task_gpus=2),
    ],
)
def test_gpus_that_tasks_use_are_none_of_ours(spark: SparkResources) -> None:
    assert is_clear(_examined(on_gpu(spark=spark)))


def test_a_rank_that_trains_on_all_gpus_of_its_task() -> None:
    both = (("cuda:0", 500), ("cuda:1", 500))
    assert is_clear(_examined(on_gpu(spark=_under_spark(4, 2), backend__parameters_by_device=both)))


def test_gpus_that_executors_hold_beside_a_job_on_the_cpu() -> None:
    finding = _found(with_(healthy(), spark=_under_spark(2, 1)))
    assert finding.id == "PD01.spark-idle-gpus"
    assert "use_gpu=True" in finding.fix.code


def test_what_spark_gives_and_how_gradients_are_averaged_is_told() -> None:
    text = _text(_examined(on_gpu(spark=_under_spark(4, 1))))
    assert text.endswith("; Spark gives 4 GPUs to an executor and 1 to a task; DistributedDataParallel was not seen")
    together = with_(ILL["PD19.small-buckets"], spark=_under_spark(None, None))
    assert "DistributedDataParallel averages gradients in every step" in _text(_examined(together))
