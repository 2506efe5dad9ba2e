"""What is said of traces that others recorded on real GPUs, where they lie beside the checkout."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from benchmarks import traces as known
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Finding
from perfdoctor.evidence.model import Idle, Missing
from perfdoctor.trials.judge import judge_recorded

pytestmark = pytest.mark.skipif(not known.FOLDER.is_dir(), reason="no traces of real GPUs beside the checkout")


def _judged(number: str) -> Diagnosis:
    (path,) = known.FOLDER.glob(f"{number}_*.json.gz")
    return judge_recorded([path], Config())


def _ills(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.id: finding for finding in diagnosis.ills}


@pytest.mark.parametrize("number", sorted(known.KNOWN))
def test_shares_agree_with_what_others_measured(number: str) -> None:
    found, expected = known.measured(_judged(number).evidence), known.KNOWN[number]
    for name in known.Known.__dataclass_fields__:
        assert known.agrees(getattr(found, name), getattr(expected, name)), name


def test_one_waits_for_data_and_its_mended_twin_does_not() -> None:
    waits = _ills(_judged("01"))
    assert list(waits) == ["PD03.waiting-for-data"]
    assert waits["PD03.waiting-for-data"].savings.share == pytest.approx(0.334, abs=0.001)
    assert "PD03.waiting-for-data" not in {finding.id for finding in _judged("02").ranked}


@pytest.mark.parametrize(("number", "exposed"), [("05", 0.206), ("06", 0.189), ("10", 0.642)])
def test_exposed_communication_has_an_amount_and_no_reason_on_one_rank(number: str, exposed: float) -> None:
    finding = _ills(_judged(number))["PD19.exposed-communication"]
    assert finding.savings.share == pytest.approx(exposed, abs=0.001)
    assert "is not known" in finding.reasoning


def test_eight_ranks_wait_for_each_other_and_no_straggler_is_named(tmp_path: Path) -> None:
    (archive,) = known.FOLDER.glob("03_*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    diagnosis = judge_recorded([tmp_path], Config())
    finding = _ills(diagnosis)["PD19.exposed-communication"]
    assert "most of it waiting for other ranks" in finding.message
    assert "late-rank" not in str([one.id for one in diagnosis.ranked])
    talk = diagnosis.evidence.activity
    assert not isinstance(talk, Missing)
    assert talk.collectives is not None
    assert talk.collectives.transport_ms == pytest.approx(0.217)


def test_the_allocator_that_is_switched_off_is_named() -> None:
    finding = _ills(_judged("09"))["PD08.device-allocations"]
    assert finding.savings.share == pytest.approx(0.887, abs=0.001)


def test_communication_under_another_name_is_no_other_finding() -> None:
    assert not _ills(_judged("15"))


@pytest.mark.parametrize(
    ("number", "step_us", "loading", "kernels"), [("01", 177_592, 33.37, 55.51), ("02", 141_068, 0.84, 70.28)]
)
def test_the_plug_ins_own_figures_are_met(number: str, step_us: float, loading: float, kernels: float) -> None:
    """Of a mean step, as the profiler's TensorBoard plug-in printed them: loading counts while the device is idle."""
    seen = _judged(number).evidence.activity
    assert not isinstance(seen, Missing)
    idle = seen.idle_by(Idle.INPUT)
    assert idle is not None
    assert 1000 * seen.step_ms == pytest.approx(step_us, rel=2e-4)
    shares = [100 * ms / seen.step_ms for ms in (idle.ms, seen.computing_ms)]
    assert shares == pytest.approx([loading, kernels], abs=0.1)
