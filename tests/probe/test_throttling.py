"""Time that a control group's quota took, read in the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.injected._perfdoctor_probe.remedies.throttling import Throttling, stat_files


def group(path: Path, text: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cpu.stat").write_text(text)
    return path


def test_the_groups_above_count_too(tmp_path: Path) -> None:
    group(tmp_path / "user", "nr_periods 4\nnr_throttled 1\nthrottled_usec 700\n")
    group(tmp_path / "user" / "job", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
    files = stat_files("0::/user/job\n", (str(tmp_path),))
    assert [Path(file).parent.name for file in files] == ["job", "user"]
    assert Throttling(files).total_us() == 700


def test_v1_counts_in_nanoseconds_under_its_own_controller(tmp_path: Path) -> None:
    group(tmp_path / "cpu" / "job", "nr_periods 9\nnr_throttled 2\nthrottled_time 3500000\n")
    membership = "4:memory:/elsewhere\n2:cpu,cpuacct:/job\n0::/\n"
    assert Throttling(stat_files(membership, (str(tmp_path / "none"), str(tmp_path / "cpu")))).total_us() == 3500


@pytest.mark.parametrize("text", ["nr_periods 0\nthrottled_usec 0\n", "usage_usec 12\n", ""])
def test_without_a_quota_there_is_nothing_to_read(text: str, tmp_path: Path) -> None:
    group(tmp_path, text)
    assert Throttling(stat_files("0::/\n", (str(tmp_path),))).total_us() is None


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    group(tmp_path, "nr_periods 1\nnr_throttled 1\nthrottled_usec 5\n")
    assert Throttling(stat_files("0::/../outside/job\n", (str(tmp_path),))).total_us() == 5
