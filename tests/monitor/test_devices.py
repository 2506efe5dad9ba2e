from __future__ import annotations

from pathlib import Path

import pytest
from nvml_fake import FakeNvml

from perfdoctor.monitor.devices import count_device_nodes, read_cpu, read_cpu_model, read_pci_gpus
from perfdoctor.monitor.gpu import NvmlGpus
from perfdoctor.monitor.machine import read_machine, write_machine
from perfdoctor.recording.machine import PciGpu
from perfdoctor.recording.monitor import read_machine_file

CPUINFO = """processor : 0
vendor_id : AuthenticAMD
cpu family : 25
model : 17
model name : AMD EPYC
flags : fpu sse4_2 avx2 avx512f hypervisor lahf_lm

processor : 1
vendor_id : Other
"""


def _pci(root: Path, address: str, vendor: str, kind: str, driver: str = "") -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    (device / "device").write_text("0x2330\n")
    if driver:
        bound = root / "sys/bus/pci/drivers" / driver
        bound.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(bound)


def test_flags_that_matter_are_read_from_the_first_cpu(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    cpu = read_cpu(tmp_path)
    assert cpu.flags == ("avx2", "avx512f", "sse4_2")
    assert cpu.hypervisor
    assert (cpu.vendor, cpu.family, cpu.model) == ("AuthenticAMD", 25, 17)
    assert read_cpu_model(tmp_path) == "AMD EPYC"


def test_arm_calls_them_features(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nFeatures : fp asimd sve bf16\n")
    cpu = read_cpu(tmp_path)
    assert cpu.flags == ("asimd", "bf16", "sve")
    assert cpu.family is None


def test_display_controllers_are_found_with_and_without_a_driver(tmp_path: Path) -> None:
    _pci(tmp_path, "0000:00:01.0", "0x10de", "0x030200", "nvidia")
    _pci(tmp_path, "0000:00:02.0", "0x10de", "0x040300")  # its sound card
    _pci(tmp_path, "0000:00:03.0", "0x1af4", "0x030000")  # a virtual screen
    _pci(tmp_path, "0000:00:04.0", "0x8086", "0x030000")
    assert read_pci_gpus(tmp_path) == (PciGpu("nvidia", "0x2330", "nvidia"), PciGpu("intel", "0x2330", ""))


@pytest.mark.parametrize(("names", "count"), [((), 0), (("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm"), 2)])
def test_only_numbered_nodes_are_gpus(tmp_path: Path, names: tuple[str, ...], count: int) -> None:
    (tmp_path / "dev").mkdir()
    for name in names:
        (tmp_path / "dev" / name).touch()
    assert count_device_nodes(tmp_path) == count


def test_a_machine_without_any_of_it_is_read(tmp_path: Path) -> None:
    assert read_pci_gpus(tmp_path) == ()
    assert count_device_nodes(tmp_path) == 0
    assert read_cpu(tmp_path).flags == ()


def test_driver_and_capability_reach_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    write_machine(read_machine(tmp_path, NvmlGpus(FakeNvml())), file)
    machine = read_machine_file(file)
    assert machine.cuda_driver == (12, 4)
    assert machine.gpus[0].capability == (9, 0)
    assert machine.gpus[0].max_sm_clock_mhz == 1980


def test_a_board_that_cannot_say_leaves_it_open(tmp_path: Path) -> None:
    silent = FakeNvml(unsupported=("CUDA version", "capability", "highest clock"))
    machine = read_machine(tmp_path, NvmlGpus(silent))
    assert machine.cuda_driver is None
    assert machine.gpus[0].capability is None
    assert machine.gpus[0].max_sm_clock_mhz is None
