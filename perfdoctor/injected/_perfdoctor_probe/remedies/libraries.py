"""Libraries that torch computes with: oneDNN, cuDNN, and TF32."""

import torch

from .base import Remedy, Switch, UnsuitableError


class _HeldOn(Remedy):
    """A library stays on although the job goes on switching it off (`flags()` does, at each entry).

    The job's own wishes are noted meanwhile, and are what holds afterwards.
    """

    setter = getter = ""

    def apply(self) -> None:
        self.wish = getattr(torch._C, self.getter)()
        self.original = getattr(torch._C, self.setter)
        if not self.available():
            raise UnsuitableError("this build of torch lacks it")

        def note(value) -> None:
            self.wish = value

        note.__name__ = self.setter
        self.original(True)
        setattr(torch._C, self.setter, note)

    def withdraw(self) -> None:
        if hasattr(self, "original"):
            setattr(torch._C, self.setter, self.original)
            self.original(self.wish)


class OneDnnOn(_HeldOn):
    """oneDNN."""

    setter, getter = "_set_mkldnn_enabled", "_get_mkldnn_enabled"

    def available(self) -> bool:
        return torch.backends.mkldnn.is_available()


class CudnnOn(_HeldOn):
    """cuDNN."""

    setter, getter = "_set_cudnn_enabled", "_get_cudnn_enabled"

    def available(self) -> bool:
        return torch.backends.cudnn.is_available()


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
