"""One test for each exit code; the others in this directory meet them in passing."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor, Said


def test_exit_0_for_a_healthy_job(healthy: Checked) -> None:
    assert healthy.code == 0, healthy.stderr
    assert healthy.alarming == []
    assert healthy.steps == 60


def test_exit_1_for_a_finding(collecting: Checked) -> None:
    assert collecting.code == 1, collecting.stderr
    assert "PD04.explicit-collect" in collecting.findings
    assert "PD04.explicit-collect" in collecting.stdout


def test_exit_2_for_a_wrong_option(said: Said) -> None:
    checked = said("check", "--stepps", "3", JOBS / "train.py")
    assert checked.code == 2
    assert "--stepps" in checked.stderr and "--steps" in checked.stderr


def test_exit_3_for_a_job_without_a_step(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "no_step.py")
    assert checked.code == 3
    assert "no training or inference step was seen" in checked.stderr
    assert "optimizer.step()" in checked.stderr and "DataLoader" in checked.stderr and "nn.Module" in checked.stderr


def test_exit_4_for_a_failed_job(crashed: Checked) -> None:
    assert crashed.code == 4
    assert "the job failed with exit code 1" in crashed.stderr
    assert crashed.facts["exit_code"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("code", "ours", "said"), [(0, 0, ""), (9, 4, "the job failed with exit code 9")])
def test_a_job_that_leaves_by_os_exit_has_been_seen(perfdoctor: Perfdoctor, code: int, ours: int, said: str) -> None:
    checked = perfdoctor.check(JOBS / "exits.py", str(code))
    assert checked.code == ours, checked.stderr
    assert said in checked.stderr
    assert checked.facts["exit_code"] == code
    assert checked.stdout.startswith("leaving\n")
    assert checked.steps >= 64


def test_exit_5_for_a_crashed_check(perfdoctor: Perfdoctor, tmp_path: Path, collecting: Checked) -> None:
    """A third party's check, found by its entry point, that raises: the others report, the code says so."""
    _third_party(tmp_path, "raise KeyError('of its own')")
    checked = perfdoctor("report", collecting.run, env={"PYTHONPATH": str(tmp_path)})
    assert checked.code == 5
    assert "PD04.explicit-collect" in checked.stdout
    assert "crashed" in checked.stdout and "of its own" in checked.stdout


def test_exit_5_for_a_check_that_cannot_be_loaded(perfdoctor: Perfdoctor, tmp_path: Path, collecting: Checked) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    _entry_point(tmp_path, "broken:CHECK")
    checked = perfdoctor("report", collecting.run, env={"PYTHONPATH": str(tmp_path)})
    assert checked.code == 5
    assert "nothing_of_this_name" in checked.stderr and "check-load" in checked.stderr


def _third_party(directory: Path, body: str) -> None:
    (directory / "thirdparty.py").write_text(
        f"""from dataclasses import dataclass

from perfdoctor.api.findings import Check


@dataclass(frozen=True, slots=True)
class Limits:
    pass


def examine(evidence, limits):
    {body}


CHECK = Check(code="XX01", name="third-party", title="somebody else's", limits=Limits(), examine=examine)
"""
    )
    _entry_point(directory, "thirdparty:CHECK")
    (directory / "perfdoctor.toml").write_text('extend-select = ["XX"]\n')


def _entry_point(directory: Path, value: str) -> None:
    info = directory / "thirdparty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[perfdoctor.checks]\nthirdparty = {value}\n")
