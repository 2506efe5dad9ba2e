"""What a data-loader worker runs when it starts, to compute with fewer or more threads."""

import sys

import torch

from .. import blas


class InWorker:
    """A `worker_init_fn`; an object, because workers that are spawned get it pickled.

    torch's setter covers OpenMP and MKL. A worker starts with it at 1, but pools of OpenBLAS and OpenCV as large as
    the machine.
    """

    def __init__(self, threads: int, before) -> None:
        self.threads = threads
        self.before = before
        """The job's own `worker_init_fn`, or None."""

    def __call__(self, worker: int) -> None:
        if self.before is not None:
            self.before(worker)
        torch.set_num_threads(self.threads)
        opencv = sys.modules.get("cv2")
        if opencv is not None:
            opencv.setNumThreads(self.threads)
        for pool in blas.pools():
            pool.set(self.threads)
