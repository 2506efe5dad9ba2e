from __future__ import annotations

import os
from pathlib import Path

from nvml_fake import FakeNvml

from perfdoctor.monitor.gpu import NvmlGpus
from perfdoctor.monitor.machine import measure_page_fault_ns, read_machine, write_machine
from perfdoctor.recording.monitor import read_machine_file


def _root(tmp_path: Path) -> Path:
    """A filesystem root whose control group allows 1.5 CPUs and 1 MiB."""
    for path, text in {
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
        "proc/self/cgroup": "0::/job",
        "proc/cpuinfo": "processor : 0\nmodel name\t: Some CPU 3000\n",
        "sys/fs/cgroup/job/cpu.max": "150000 100000",
        "sys/fs/cgroup/job/memory.max": "1048576",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_control_group_caps_memory_and_gives_the_quota(tmp_path: Path) -> None:
    machine = read_machine(_root(tmp_path), NvmlGpus(FakeNvml(driver=False)))
    assert machine.cpu_model == "Some CPU 3000"
    assert machine.quota_cpus == 1.5
    assert machine.memory_bytes == 1 << 20
    assert machine.affinity_cpus == len(os.sched_getaffinity(0))
    assert machine.gpus == ()
    assert "Not Found" in machine.gpus_absent


def test_a_root_without_anything_still_reads(tmp_path: Path) -> None:
    machine = read_machine(tmp_path)
    assert machine.cpu_model
    assert machine.quota_cpus is None
    assert machine.memory_bytes > 0


def test_a_page_fault_costs_something() -> None:
    cost = measure_page_fault_ns()
    assert cost is not None
    assert cost > 0


def test_a_machine_survives_the_file(tmp_path: Path) -> None:
    machine = read_machine(_root(tmp_path), NvmlGpus(FakeNvml(count=2)))
    file = tmp_path / "machine.json"
    write_machine(machine, file)
    assert read_machine_file(file) == machine
    assert machine.usable_cpus == min(1.5, machine.affinity_cpus)
    assert [gpu.name for gpu in machine.gpus] == ["Board 0", "Board 1"]
