"""What holds one rank back: its own quota, and the clock of its CPU, in both layouts of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import held_back


def _file(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_all_groups_around_a_process_count_in_v2(tmp_path: Path) -> None:
    _file(tmp_path, "proc/self/cgroup", "0::/pod/rank1\n")
    _file(tmp_path, "sys/fs/cgroup/pod/cpu.stat", "usage_usec 9\nthrottled_usec 200\n")
    _file(tmp_path, "sys/fs/cgroup/pod/rank1/cpu.stat", "nr_throttled 3\nthrottled_usec 5000\n")
    assert held_back.throttled_us(str(tmp_path)) == 5_200


def test_v1_counts_in_nanoseconds_and_a_hybrid_layout_has_both(tmp_path: Path) -> None:
    _file(tmp_path, "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/rank1\n0::/rank1\n")
    _file(tmp_path, "sys/fs/cgroup/cpu,cpuacct/rank1/cpu.stat", "nr_throttled 3\nthrottled_time 7000000\n")
    _file(tmp_path, "sys/fs/cgroup/unified/rank1/cpu.stat", "usage_usec 9\n")
    assert held_back.throttled_us(str(tmp_path)) == 7_000


def test_a_system_without_control_groups_says_nothing(tmp_path: Path) -> None:
    assert held_back.throttled_us(str(tmp_path)) is None
    assert held_back.clock_mhz(str(tmp_path)) is None


def test_the_clock_is_that_of_the_cpu_that_the_thread_is_on(tmp_path: Path) -> None:
    fields = " ".join(["S", *["0"] * 35, "3", "0"])
    _file(tmp_path, "proc/thread-self/stat", f"100 (a (strange) name) {fields}\n")
    assert held_back.clock_mhz(str(tmp_path)) is None
    for cpu, khz in ((2, 1_000_000), (3, 2_400_000)):
        _file(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", f"{khz}\n")
    assert held_back.clock_mhz(str(tmp_path)) == 2_400.0


def test_a_process_is_asked_once_it_is_a_rank_among_others_and_then_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, distributed = held_back.HeldBack(), torch.distributed
    assert seen.counters() == {}
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 1)
    assert seen.counters() == {}
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    assert set(seen.counters()) == {"throttled_us", "clock_mhz"}
    monkeypatch.setattr(distributed, "is_initialized", lambda: False)
    assert set(seen.counters()) == {"throttled_us", "clock_mhz"}
