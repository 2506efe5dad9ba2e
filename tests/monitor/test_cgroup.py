"""Real small trees of files, laid out as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.monitor.cgroup import Cgroups, throttled_between
from perfdoctor.recording.host import Throttling

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
V1_CPU_MOUNT = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
HYBRID_MOUNT = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
UNLIMITED_V1 = "9223372036854771712"


class Tree:
    """A filesystem root with /proc and control groups in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", "\n".join(("23 1 0:3 / /proc rw - proc proc rw", *lines)))

    def groups(self, *lines: str, pid: str = "self") -> None:
        self.write(f"proc/{pid}/cgroup", "\n".join(lines))

    def open(self) -> Cgroups:
        return Cgroups(self.root)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_v2_quota_is_read_in_cores(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/job")
    tree.write("sys/fs/cgroup/job/cpu.max", "250000 100000")
    assert tree.open().quota_cpus() == 2.5


def test_no_v2_quota_is_none(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/job")
    tree.write("sys/fs/cgroup/job/cpu.max", "max 100000")
    assert tree.open().quota_cpus() is None


def test_the_tightest_v2_ancestor_counts(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/pod/box/job")
    tree.write("sys/fs/cgroup/pod/cpu.max", "150000 100000")
    tree.write("sys/fs/cgroup/pod/box/cpu.max", "max 100000")
    tree.write("sys/fs/cgroup/pod/box/job/cpu.max", "400000 100000")
    tree.write("sys/fs/cgroup/pod/memory.max", "max")
    tree.write("sys/fs/cgroup/pod/box/memory.max", "1000")
    tree.write("sys/fs/cgroup/pod/box/job/memory.max", "2000")
    assert tree.open().quota_cpus() == 1.5
    assert tree.open().memory_limit_bytes() == 1000


def test_a_v1_quota_is_read_in_cores(tree: Tree) -> None:
    tree.mounts(V1_CPU_MOUNT)
    tree.groups("4:cpu,cpuacct:/job")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    assert tree.open().quota_cpus() == 0.5


def test_v1_without_a_memory_limit_is_none(tree: Tree) -> None:
    tree.mounts(V1_MEMORY_MOUNT)
    tree.groups("4:memory:/job")
    tree.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", UNLIMITED_V1)
    assert tree.open().memory_limit_bytes() is None


def test_a_hybrid_layout_finds_each_controller_in_its_own_tree(tree: Tree) -> None:
    tree.mounts(V1_CPU_MOUNT, V1_MEMORY_MOUNT, HYBRID_MOUNT)
    tree.groups("4:memory:/limits/job", "1:cpu,cpuacct:/", "0::/scope")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000")
    tree.write("sys/fs/cgroup/memory/limits/memory.limit_in_bytes", "4096")
    tree.write("sys/fs/cgroup/memory/limits/job/memory.limit_in_bytes", UNLIMITED_V1)
    tree.write("sys/fs/cgroup/memory/limits/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3")
    tree.write("sys/fs/cgroup/unified/scope/cpu.stat", "usage_usec 1")
    tree.write("sys/fs/cgroup/unified/scope/cpu.pressure", "some avg10=1.00 avg60=0 avg300=0 total=0")
    groups = tree.open()
    assert groups.quota_cpus() == 3.0
    assert groups.memory_limit_bytes() == 4096
    assert groups.oom_kills() == 3
    assert groups.throttling() == (Throttling(str(tree.root / "sys/fs/cgroup/cpu,cpuacct"), 10, 4, 2.5),)
    assert groups.pressure_file("cpu") == tree.root / "sys/fs/cgroup/unified/scope/cpu.pressure"


def test_v2_throttling_is_read_at_every_level(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/pod/job")
    tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 5")
    tree.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 5\nnr_periods 20\nnr_throttled 5\nthrottled_usec 700000")
    tree.write("sys/fs/cgroup/pod/job/cpu.stat", "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0")
    own, pod = tree.open().throttling()
    assert (own.periods, own.throttled_seconds) == (0, 0.0)
    assert (pod.periods, pod.throttled_periods, pod.throttled_seconds) == (20, 5, 0.7)


def test_v2_oom_kills_are_those_of_the_own_group(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/pod/job")
    tree.write("sys/fs/cgroup/pod/memory.events", "low 0\noom 9\noom_kill 9")
    tree.write("sys/fs/cgroup/pod/job/memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0")
    assert tree.open().oom_kills() == 1


def test_memory_left_counts_clean_cache_as_free(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/job")
    tree.write("sys/fs/cgroup/job/memory.max", "1000")
    tree.write("sys/fs/cgroup/job/memory.current", "900")
    tree.write("sys/fs/cgroup/job/memory.stat", "anon 500\ninactive_file 300")
    assert tree.open().memory_available_bytes() == 400


def test_another_process_is_looked_up_by_its_pid(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/")
    tree.groups("0::/job", pid="77")
    tree.write("sys/fs/cgroup/job/cpu.max", "100000 100000")
    assert tree.open().quota_cpus() is None
    assert tree.open().quota_cpus(77) == 1.0


def test_a_process_that_ended_keeps_its_last_known_group(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/job", pid="77")
    tree.write("sys/fs/cgroup/job/memory.events", "oom_kill 0")
    groups = tree.open()
    assert groups.oom_kills(77) == 0
    (tree.root / "proc/77/cgroup").unlink()
    tree.write("sys/fs/cgroup/job/memory.events", "oom_kill 1")
    assert groups.oom_kills(77) == 1


def test_a_container_that_sees_its_own_group_as_the_mounts_root(tree: Tree) -> None:
    tree.mounts("32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    tree.groups("4:cpu:/docker/abc/inner")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "50000")
    tree.write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000")
    assert tree.open().quota_cpus() == 0.5


def test_a_container_that_reads_the_hosts_name_of_its_group(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/kubepods/pod1/abc")
    tree.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert tree.open().quota_cpus() == 2.0


def test_a_group_outside_the_namespace_falls_back_to_the_mount(tree: Tree) -> None:
    tree.mounts(V2_MOUNT)
    tree.groups("0::/../other")
    tree.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert tree.open().quota_cpus() == 2.0


def test_a_mount_point_with_a_blank_is_understood(tree: Tree) -> None:
    tree.mounts("30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw")
    tree.groups("0::/job")
    tree.write("my groups/job/cpu.max", "200000 100000")
    assert tree.open().quota_cpus() == 2.0


def test_without_control_groups_nothing_is_known(tree: Tree) -> None:
    groups = tree.open()
    assert groups.quota_cpus() is None
    assert groups.throttling() == ()
    assert groups.memory_limit_bytes() is None
    assert groups.memory_available_bytes() is None
    assert groups.oom_kills() is None
    assert groups.pressure_file("cpu") is None


def test_the_difference_is_taken_at_the_level_throttled_longest() -> None:
    before = (Throttling("job", 10, 1, 0.1), Throttling("pod", 100, 50, 5.0))
    after = (Throttling("job", 20, 5, 0.9), Throttling("pod", 110, 52, 5.2))
    assert throttled_between(before, after) == Throttling("job", 10, 4, pytest.approx(0.8))


def test_no_counters_give_no_difference() -> None:
    assert throttled_between((), ()) is None


def test_this_machine_can_be_read() -> None:
    groups = Cgroups()
    quota = groups.quota_cpus()
    assert quota is None or quota > 0
    limit = groups.memory_limit_bytes()
    assert limit is None or limit > 0
