"""What torch computes with: oneDNN, cuDNN, TF32, and intra-op threads."""

import torch

from .. import blas
from .base import Remedy, Switch, UnsuitableError


class _HeldOn(Remedy):
    """A library stays on although the job goes on switching it off (`flags()` does, at each entry).

    The job's own wishes are noted meanwhile, and are what holds afterwards.
    """

    library = ""
    """As `torch.backends` calls it."""

    def apply(self) -> None:
        if not getattr(torch.backends, self.library).is_available():
            raise UnsuitableError("this build of torch lacks it")
        setter = f"_set_{self.library}_enabled"
        self.wish = getattr(torch._C, f"_get_{self.library}_enabled")()
        self.original = getattr(torch._C, setter)

        def note(value) -> None:
            self.wish = value

        note.__name__ = setter
        self.original(True)
        self.changes.put(torch._C, setter, note)

    def withdraw(self) -> None:
        super().withdraw()
        if hasattr(self, "original"):
            self.original(self.wish)


class OneDnnOn(_HeldOn):
    """oneDNN."""

    library = "mkldnn"


class CudnnOn(_HeldOn):
    """cuDNN."""

    library = "cudnn"


class CudnnBenchmark(Switch):
    """cuDNN times its algorithms for each new shape."""

    settle = 6

    def read(self) -> bool:
        return torch._C._get_cudnn_benchmark()

    def set(self, value: bool) -> None:
        torch._C._set_cudnn_benchmark(value)


class Tf32(Switch):
    """Only the new names: the old ones raise once a job has used these."""

    wanted = "tf32"

    def read(self) -> str:
        precision = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
        if precision is None:
            raise UnsuitableError("it needs torch 2.9 or newer")
        return precision

    def set(self, value: str) -> None:
        torch.backends.cuda.matmul.fp32_precision = value


class Threads(Switch):
    """`torch.set_num_threads`."""

    settle = 3

    def read(self) -> int:
        return torch.get_num_threads()

    def set(self, value: int) -> None:
        torch.set_num_threads(value)

    @property
    def wanted(self) -> int:
        return max(1, self.value)


class BlasThreads(Switch):
    """One for each pool of OpenBLAS's; those of torch's own library are its intra-op threads."""

    settle = 3

    def read(self) -> "list[int]":
        self.pools = blas.pools()
        if not self.pools:
            raise UnsuitableError("no OpenBLAS is loaded")
        return [pool.count() for pool in self.pools]

    def set(self, value: "list[int]") -> None:
        for pool, count in zip(self.pools, value):
            pool.set(count)

    @property
    def wanted(self) -> "list[int]":
        return [1] * len(self.pools)
