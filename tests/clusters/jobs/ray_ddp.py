"""Two ranks under Ray Train. Tells what was learnt, which is the same every time."""

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from torch.utils.data import DataLoader, Dataset

RESULTS = Path.home() / "results"
"""That both nodes reach."""
BATCH = 32


class Samples(Dataset):
    """Of a rank whose data are late, each batch takes 30 ms more."""

    def __init__(self, steps, late):
        self.steps, self.late = steps, late

    def __len__(self):
        return BATCH * self.steps

    def __getitem__(self, index):
        if self.late and index % BATCH == 0:
            time.sleep(0.03)
        return torch.full((64,), float(index % 7))


def save(loss, rank, megabytes):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "loss").write_text(f"{loss.item():.6f}")
        Path(folder, f"part-{rank}").write_bytes(bytes(megabytes << 20))
        ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


def fail(step, config):
    """As rank 1 is told to, in the first attempt."""
    if step == config["raise_at"]:
        again = RESULTS / f"{config['name']}-failed"
        if not again.exists():
            again.touch()
            raise ValueError("a batch that cannot be read")
    if step == config["kill_at"]:
        os.kill(os.getpid(), signal.SIGKILL)


def loop(config):
    torch.manual_seed(0)
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = Samples(config["steps"], rank == config["late"])
    for step, batch in enumerate(DataLoader(samples, batch_size=BATCH)):
        if rank == 1:
            fail(step, config)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if config["save_every"] and step % config["save_every"] == 0:
            save(loss, rank, 8)
    save(loss, rank, 0)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("steps", type=int)
    options.add_argument("--name")
    for name in ("late", "raise-at", "kill-at"):
        options.add_argument(f"--{name}", type=int, default=-1)
    for name in ("save-every", "retries"):
        options.add_argument(f"--{name}", type=int, default=0)
    config = vars(options.parse_args())
    result = TorchTrainer(
        loop,
        train_loop_config=config,
        # Half a CPU each: two jobs at a time have room.
        scaling_config=ScalingConfig(
            num_workers=2, resources_per_worker={"CPU": 0.5}, placement_strategy="STRICT_SPREAD"
        ),
        run_config=RunConfig(
            name=config["name"],
            storage_path=str(RESULTS),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            failure_config=FailureConfig(max_failures=config["retries"]),
        ),
    ).fit()
    print("learnt", Path(result.checkpoint.path, "loss").read_text())
