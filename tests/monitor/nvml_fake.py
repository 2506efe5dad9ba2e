"""Stands for the module `pynvml`: the seam is above it."""

from __future__ import annotations

from types import SimpleNamespace


class NVMLError(Exception):
    pass


class FakeNvml:
    """A machine with `count` GPUs whose numbers a test can set. `unsupported` names functions that fail."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, count: int = 1, *, driver: bool = True, unsupported: tuple[str, ...] = ()) -> None:
        self.count = count
        self.driver = driver
        self.unsupported = unsupported
        self.utilisation = 50
        self.used = 1 << 30
        self.pids: list[int] = []
        self.open = False

    def _refuse(self, name: str) -> None:
        if name in self.unsupported:
            raise NVMLError("Not Supported")

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.54"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._refuse("CUDA version")
        return 12040

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        self._refuse("capability")
        return 9, 0

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        self._refuse("highest clock")
        return 1980

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"Board {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        self._refuse("memory")
        return SimpleNamespace(total=80 << 30, used=self.used)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self._refuse("utilisation")
        return SimpleNamespace(gpu=self.utilisation, memory=0)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1410

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:
        self._refuse("temperature")
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        self._refuse("event reasons")
        return 0x4

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x8

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self.pids]
