"""A job that is only run with remedies: they stay, and the probe's hooks go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from observing import bare_environment, probed_environment

pytestmark = pytest.mark.e2e

JOB = """
import gc, multiprocessing.reduction, sys
import torch
from torch import nn
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader, TensorDataset, dataloader

def ours(function):
    return "_perfdoctor_probe" in getattr(getattr(function, "__code__", None), "co_filename", "")

def hooks():
    found = {
        "iter": dataloader.DataLoader.__iter__, "next": dataloader._BaseDataLoaderIter.__next__,
        "backward": torch.autograd._engine_run_backward, "collect": gc.collect, "save": torch.save,
        "compile": torch.compile, "loads": multiprocessing.reduction.ForkingPickler.loads,
        "call": nn.Module.__call__, "model": nn.Sequential.__call__,
    }
    names = [name for name, function in found.items() if ours(function)]
    steps = [*optim._global_optimizer_pre_hooks.values(), *optim._global_optimizer_post_hooks.values()]
    names += ["steps"] * any(ours(hook) and hook.__name__ != "_nothing" for hook in steps)
    return sorted([*names, *["callback"] * any(ours(callback) for callback in gc.callbacks)])

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4)
sizes = []
for epoch in range(2):
    for (x,) in loader:
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
        gc.collect()
        sizes.append(len(x))
print(hooks(), torch.get_num_threads(), sizes[-1], gc.isenabled())
"""


def run(tmp_path: Path, remedies: str) -> str:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    run = tmp_path / "run"
    run.mkdir()
    environment = probed_environment(bare_environment(), run, "") | {"PERFDOCTOR_APPLY": remedies}
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remedies", "left"),
    [
        ("threads=2", "[] 2 4 True"),
        ("gc.no-explicit,batch.larger=2,gc.every=3", "['collect', 'iter', 'steps'] 1 8 False"),
    ],
)
def test_hooks_that_no_remedy_needs_are_taken_out(remedies: str, left: str, tmp_path: Path) -> None:
    assert run(tmp_path, remedies) == left
