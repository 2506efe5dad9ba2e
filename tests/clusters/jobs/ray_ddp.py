"""Two ranks under Ray Train: `ray_ddp.py STEPS [SLOW RANK]`. Tells what was learnt, which is the same every time."""

import sys
import tempfile
import time
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn


def loop(config):
    torch.manual_seed(0)
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(config["steps"]):
        if rank == config["slow"]:
            time.sleep(0.03)
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "loss").write_text(f"{loss.item():.6f}")
        ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    config = {"steps": int(sys.argv[1]), "slow": int(sys.argv[2]) if len(sys.argv) > 2 else -1}
    result = TorchTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=str(Path.home() / "results")),  # that both nodes reach
    ).fit()
    print("learnt", Path(result.checkpoint.path, "loss").read_text())
