"""The GPUs as NVML sees them: a thin seam, so that everything above it runs without a driver.

Every question may be unsupported on some board (MIG, vGPU, unified memory): then that one answer is None.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from ..recording.host import GpuProcess, GpuSample
from ..recording.machine import Gpu

T = TypeVar("T")


class NvmlGpus:
    """All GPUs of this machine; none, with a reason in `absent`, where NVML cannot be used."""

    def __init__(self, library: Any | None = None) -> None:
        """Starts NVML; raises nothing. `library` stands for the module `pynvml`, imported only here."""
        self._library: Any = None
        self._handles: tuple[Any, ...] = ()
        self.absent = ""
        """Why there are no GPUs, as a clause; "" when there are some."""
        try:
            library = library if library is not None else importlib.import_module("pynvml")
        except ImportError as error:
            self.absent = f"pynvml cannot be imported: {error}"
            return
        # The second is what newer bindings raise when the driver knows only an older version of a function.
        mismatch = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
        self._errors: tuple[type[BaseException], ...] = (library.NVMLError, mismatch, OSError)
        try:
            library.nvmlInit()
        except self._errors as error:
            self.absent = f"NVML: {error}"
            return
        self._library = library
        count = self._ask(library.nvmlDeviceGetCount) or 0
        found = (self._ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count))
        self._handles = tuple(handle for handle in found if handle is not None)
        if not self._handles:
            self.absent = "NVML lists no GPU"

    def cards(self) -> tuple[Gpu, ...]:
        """The GPUs by index."""
        if not self._handles:
            return ()
        nvml = self._library
        driver = self._ask(nvml.nvmlSystemGetDriverVersion) or "unknown"
        cards = []
        for index, handle in enumerate(self._handles):
            memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
            cards.append(
                Gpu(
                    index=index,
                    name=self._ask(nvml.nvmlDeviceGetName, handle) or "unknown",
                    memory_bytes=0 if memory is None else memory.total,
                    driver=driver,
                    capability=self._ask(nvml.nvmlDeviceGetCudaComputeCapability, handle),
                    max_sm_clock_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
                )
            )
        return tuple(cards)

    def cuda_driver(self) -> tuple[int, int] | None:
        """Newest CUDA version that the driver runs; None without a driver."""
        if self._library is None:
            return None
        version = self._ask(self._library.nvmlSystemGetCudaDriverVersion_v2)
        # 12040 is 12.4: https://docs.nvidia.com/deploy/nvml-api, nvmlSystemGetCudaDriverVersion_v2
        return None if version is None else (version // 1000, version % 1000 // 10)

    def read(self) -> tuple[GpuSample, ...]:
        """Every GPU now."""
        return tuple(self._read(index, handle) for index, handle in enumerate(self._handles))

    def close(self) -> None:
        """Stops NVML; later readings are empty."""
        if self._library is not None:
            self._ask(self._library.nvmlShutdown)
        self._library, self._handles = None, ()

    def _read(self, index: int, handle: Any) -> GpuSample:
        nvml = self._library
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:  # its name before driver 535
            reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        return GpuSample(
            index=index,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            sm_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            throttle_reasons=reasons,
            processes=tuple(GpuProcess(p.pid, index, p.usedGpuMemory) for p in processes),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return question(*arguments)
        except self._errors:
            return None  # not supported here, or the GPU fell off the bus
