"""Prints what microbenchmark of batches makes of operators: `batches.py INJECTED`."""

import json
import sys

import torch
from torch import nn
from torch.autograd.profiler import profile as profiler

sys.path.insert(0, sys.argv[1])

from _perfdoctor_probe.microbenchmarks import batch
from _perfdoctor_probe.windows import operators

WEIGHTS = {(64, 32), (64,), (6, 3, 3, 3), (8, 3, 3, 3), (64, 16)}
CASES = {
    "forward": ("aten::addmm", [[64], [8, 32], [32, 64], [], []]),
    "gradient of the input": ("aten::mm", [[8, 64], [64, 32]]),
    "gradient of the weight": ("aten::mm", [[64, 8], [8, 32]]),
    "attention": ("aten::bmm", [[8, 5, 7], [8, 7, 5]]),
    "convolution": ("aten::convolution", [[8, 3, 8, 8], [6, 3, 3, 3], [6]]),
    "convolution whose weight has as many rows": ("aten::convolution", [[8, 3, 8, 8], [8, 3, 3, 3], [8]]),
    "recurrent": ("aten::mkldnn_rnn_layer", [[5, 8, 16], [64, 16], [64, 16], [64], [64], [8, 16], [8, 16]]),
    "elementwise": ("aten::relu", [[8, 64]]),
}


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Last(nn.Module):
    def forward(self, found):
        return found[0]


def networks():
    yield "linear", nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), torch.randn(8, 32)
    yield "convolutional", nn.Sequential(nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3)), torch.randn(8, 3, 16, 16)
    yield "recurrent", nn.Sequential(nn.LSTM(16, 16), Last()), torch.randn(5, 8, 16)
    yield "attention", nn.Sequential(nn.Linear(16, 16), Attention()), torch.randn(8, 2, 12, 16)


def timings(network, inputs):
    for _ in range(2):
        network(inputs).sum().backward()
    with profiler(record_shapes=True) as seen:
        network(inputs).sum().backward()
    profile, arguments = operators.summarise(*operators.divided(seen.kineto_results.events()), 1)
    weights = {tuple(parameter.shape) for parameter in network.parameters()}
    return batch.timings(profile["ops"], arguments, weights)


torch.manual_seed(0)
found = {name: timings(network, inputs) for name, network, inputs in networks()}
state = torch.random.get_rng_state()
torch.random.set_rng_state(state)
before = torch.rand(1).item()
network, inputs = nn.Sequential(nn.Linear(32, 64)), torch.ones(8, 32)
torch.random.set_rng_state(state)
timings(network, inputs)
print(
    json.dumps(
        {
            "resized": {name: batch.resized(op, shapes, WEIGHTS, 3, 1) for name, (op, shapes) in CASES.items()},
            "divided": {
                "8 by 4": batch.resized(*CASES["forward"], WEIGHTS, 1, 4),
                "6 by 4": batch.resized("aten::addmm", [[64], [6, 32], [32, 64], [], []], WEIGHTS, 1, 4),
            },
            "timings": found,
            "random": [before, torch.rand(1).item()],
        }
    )
)
