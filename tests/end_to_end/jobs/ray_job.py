"""Two ranks under Ray Train, for longer than anybody looks."""

import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn


def loop() -> None:
    model = prepare_model(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
    print("the driver went on")
