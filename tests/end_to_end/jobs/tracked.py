"""A loop that a tracker follows: `tracked.py TRACKER EVERY`, every so many steps."""

import os
import sys

import torch
from torch import nn

TRACKER, EVERY = sys.argv[1], int(sys.argv[2])


def tensorboard(net):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("board")

    def log(step, loss):
        writer.add_scalar("loss", loss, step)
        for name, weight in net.named_parameters():
            writer.add_histogram(name, weight, step)  # tensorboard's line

    return log


def wandb(net):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=".")
    import wandb as tracker

    tracker.init(project="tracked")

    weights = {name: tracker.Histogram(weight.detach().numpy()) for name, weight in net.named_parameters()}

    def log(step, loss):
        for part in range(4):
            tracker.log({"loss": loss, "part": part, **weights})  # wandb's line

    return log


def mlflow(net):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as tracker

    tracker.set_tracking_uri("file:mlruns")
    tracker.start_run()

    def log(step, loss):
        weights = {name: weight.norm().item() for name, weight in net.named_parameters()}
        tracker.log_metrics({"loss": loss, **weights}, step=step)  # mlflow's line

    return log


def mlflow_client(net):
    """As Lightning's logger does."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as tracker

    client = tracker.MlflowClient("file:mlruns")
    run = client.create_run(client.create_experiment("tracked")).info.run_id

    def log(step, loss):
        metrics = [tracker.entities.Metric(f"loss.{part}", loss, 0, step) for part in range(5)]
        client.log_batch(run, metrics=metrics)  # mlflow_client's line

    return log


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    log = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow, "mlflow_client": mlflow_client}[TRACKER](net)
    for step in range(1_000_000):
        # Small steps would make a log line every 50 of them dear.
        for _ in range(8):
            loss = net(torch.randn(512, 32)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            log(step, loss.item())


if __name__ == "__main__":
    main()
