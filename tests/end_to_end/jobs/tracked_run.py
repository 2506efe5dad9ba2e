"""Trains within a run of MLflow or W&B, which stay on this machine: `tracked_run.py mlflow|wandb`."""

import os
import sys

import torch
from torch import nn

os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def train():
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(400):
        loss = model(torch.randn(256, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6f}")


if sys.argv[1] == "mlflow":
    import mlflow

    mlflow.set_tracking_uri("file:mlruns")
    with mlflow.start_run():
        train()
else:
    import wandb

    with wandb.init(project="perfdoctor-test"):
        train()
