from __future__ import annotations

import sys

import pytest
from nvml_fake import FakeNvml

from perfdoctor.monitor.gpu import NvmlGpus
from perfdoctor.recording.host import GpuProcess
from perfdoctor.recording.machine import Gpu


def test_cards_and_readings_come_from_nvml() -> None:
    nvml = FakeNvml(count=2)
    nvml.pids = [11]
    gpus = NvmlGpus(nvml)
    assert gpus.absent == ""
    assert gpus.cards()[1] == Gpu(1, "Board 1", 80 << 30, "550.54", (9, 0), 1980)
    first, second = gpus.read()
    assert (first.index, second.index) == (0, 1)
    assert first.utilisation == 0.5
    assert first.memory_used_bytes == 1 << 30
    assert first.sm_clock_mhz == 1410 and first.temperature_c == 61
    assert first.throttle_reasons == 0x4
    assert first.processes == (GpuProcess(11, 0, None),)


def test_without_a_driver_there_are_no_gpus_and_a_reason() -> None:
    gpus = NvmlGpus(FakeNvml(driver=False))
    assert gpus.cards() == ()
    assert gpus.read() == ()
    assert "NVML Shared Library Not Found" in gpus.absent
    gpus.close()


def test_without_a_board_there_is_a_reason() -> None:
    assert NvmlGpus(FakeNvml(count=0)).absent == "NVML lists no GPU"


def test_without_the_bindings_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = NvmlGpus()
    assert gpus.read() == ()
    assert gpus.absent.startswith("pynvml cannot be imported")
    gpus.close()


def test_what_a_board_does_not_support_is_none_and_the_rest_stays() -> None:
    gpus = NvmlGpus(FakeNvml(unsupported=("utilisation", "memory")))
    (reading,) = gpus.read()
    assert reading.utilisation is None
    assert reading.memory_used_bytes is None
    assert reading.sm_clock_mhz == 1410
    assert gpus.cards()[0].memory_bytes == 0


def test_an_old_driver_is_asked_by_the_old_name() -> None:
    (reading,) = NvmlGpus(FakeNvml(unsupported=("event reasons",))).read()
    assert reading.throttle_reasons == 0x8


def test_closing_ends_nvml_and_its_readings() -> None:
    nvml = FakeNvml()
    gpus = NvmlGpus(nvml)
    assert nvml.open
    gpus.close()
    gpus.close()
    assert not nvml.open
    assert gpus.read() == ()
