# /// clinic
# expect = ["PD10.penalty-by-hand"]
# stratum = "twins"
# domain = "near-infrared spectra of tea"
# ///
"""Estimate caffeine, catechins, theanine and moisture of tea leaves from near-infrared spectra.

usage: tea_spectra.py [sick|well] [--steps N] [--decay W]
The spectra are sums of absorption bands, whose strengths follow the four contents, with a baseline drift and noise.
"""

import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


CONTENTS = ("caffeine", "catechins", "theanine", "moisture")
CHANNELS = 1400


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--decay", type=float, default=2e-4, help="strength of the L2 penalty on the network")
    parser.add_argument("--rate", type=float, default=0.02)
    return parser.parse_args()


def measure(count, seed):
    """Spectra (count, CHANNELS) and scaled contents (count, 4)."""
    generator = torch.Generator().manual_seed(seed)
    wavelength = torch.linspace(0, 1, CHANNELS)
    centres = torch.rand(4, 6, 1, generator=generator)
    widths = 0.01 + 0.05 * torch.rand(4, 6, 1, generator=generator)
    bands = torch.exp(-(((wavelength - centres) / widths) ** 2)).sum(1)
    contents = torch.rand(count, 4, generator=generator)
    mixed = contents + 0.3 * contents.roll(1, 1) * contents
    scatter = 1 + 0.1 * torch.randn(count, 1, generator=generator)
    drift = torch.randn(count, 1, generator=generator) * 0.2 * wavelength
    noise = 0.01 * torch.randn(count, CHANNELS, generator=generator)
    return scatter * (mixed @ bands) + drift + noise, contents


def standard_normal_variate(spectra):
    """The customary correction of scatter: each spectrum to mean 0 and deviation 1."""
    return (spectra - spectra.mean(1, keepdim=True)) / spectra.std(1, keepdim=True)


def build_network(hidden=2048, layers=3):
    parts, width = [], CHANNELS
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    parts.append(nn.Linear(width, len(CONTENTS)))
    return nn.Sequential(*parts)


def build_optimizer(network, rate, decay):
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=True)  # sick here
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=True, weight_decay=decay)  # well


def penalty(network, decay):
    return decay / 2 * sum(weights.pow(2).sum() for weights in network.parameters())  # here


def rate_at(step, steps):
    return min(1.0, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / steps))


def train_step(network, optimizer, spectra, contents, decay):
    error = F.mse_loss(network(spectra), contents)
    loss = error
    loss = loss + penalty(network, decay)  # sick here
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return error.detach()


def evaluate(network, spectra, contents):
    with torch.no_grad():
        errors = (network(spectra) - contents).pow(2).mean(0).sqrt()
    for name, error in zip(CONTENTS, errors.tolist()):
        print(f"  {name:10s} RMSE {error:.4f}")


def train(arguments):
    spectra, contents = measure(4000, seed=8)
    spectra = standard_normal_variate(spectra)
    held_out, known = spectra[3600:], contents[3600:]
    spectra, contents = spectra[:3600], contents[:3600]

    network = build_network()
    optimizer = build_optimizer(network, arguments.rate, arguments.decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, arguments.steps))

    start, errors = time.time(), []
    for step in range(1, arguments.steps + 1):
        chosen = torch.randint(len(spectra), (arguments.batch,))
        errors.append(train_step(network, optimizer, spectra[chosen], contents[chosen], arguments.decay))
        schedule.step()
        if step % 50 == 0:
            speed = step / (time.time() - start)
            print(f"step {step:4d}  error {torch.stack(errors).mean():.5f}  {speed:.1f} steps/s")
            errors.clear()
    evaluate(network, held_out, known)


def main():
    arguments = parse_arguments()
    torch.manual_seed(21)
    train(arguments)


if __name__ == "__main__":
    main()
