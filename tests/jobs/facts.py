"""What a job can see of its own state: printed by the jobs, compared between a bare and an observed run."""

import copy
import gc
import hashlib
import io
import json
import os
import pickle
import random
import sys
import tempfile
import threading
import warnings

import numpy as np
import torch


def digest(tensors):
    """Of the very bytes."""
    state = hashlib.sha256()
    for tensor in tensors:
        state.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:16]


def randomness():
    """Leaves the generators one draw further on, in both runs."""
    return [torch.rand(1).item(), random.random(), float(np.random.rand())]


def seed(value=0):
    torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value)


def open_files():
    """Kinds of open descriptors."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own
            continue
        name = target.partition(":")[0] if ":" in target else os.path.basename(target)
        found.append("shared memory" if name.startswith("torch_") else name)
    return sorted(found)


def process():
    return {
        "argv": sys.argv,
        # torch before 2.9 adds a directory of its own, named by chance.
        "path": [path for path in sys.path if os.path.dirname(path) != tempfile.gettempdir()],
        "finders": [str(getattr(finder, "__name__", type(finder).__name__)) for finder in sys.meta_path],
        # A pool's threads are started and ended by chance (inductor's compile workers).
        "threads": sorted(t.name for t in threading.enumerate() if not t.name.startswith("ThreadPoolExecutor")),
        "files": open_files(),
        "filters": len(warnings.filters),
        "trace": [sys.gettrace() is None, sys.getprofile() is None],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "modes": torch._C._len_torch_dispatch_stack(),
        "profiler": torch.autograd._profiler_enabled(),
        "grad": torch.is_grad_enabled(),
        "name": __name__,
    }


def pickled(*objects):
    """Sizes, after a round trip each."""
    sizes = []
    for item in objects:
        data = pickle.dumps(item)
        pickle.loads(data)
        copy.deepcopy(item)
        sizes.append(len(data))
    return sizes


def saved(item):
    buffer = io.BytesIO()
    torch.save(item, buffer)
    return len(buffer.getvalue())


def show(name, value):
    print(name, json.dumps(value, sort_keys=True, default=str), flush=True)
