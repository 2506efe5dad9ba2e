# /// clinic
# expect = ["PD05.mergeable-accumulation"]
# stratum = "twins"
# domain = "sleep staging from wrist actigraphy with differential privacy"
# ///
"""Sleep staging from wrist actigraphy under differential privacy (DP-SGD, functional style).

Each sample is one 30 s epoch of a wristband's three axes at 30 Hz, labelled wake / light / deep / REM.  Every sample's gradient
is clipped to a norm of C, the clipped gradients are summed and Gaussian noise is added, as in Abadi et al. 2016.
"""

import math
import time

import torch
import torch.nn.functional as F
from torch.func import grad, vmap


STAGES = ("wake", "light", "deep", "rem")
AXES, LENGTH = 3, 900
LOT = 32  # samples in a lot
STEPS = 900
PHYSICAL = 4  # samples whose gradients lie in memory at a time  # here
CLIP = 1.0
NOISE = 0.6
RATE = 0.08
MOMENTUM = 0.9


def make_nights(count, generator):
    """Synthetic epochs: each stage has its own rate and strength of movement bursts over a breathing rhythm."""
    stage = torch.randint(0, len(STAGES), (count,), generator=generator)
    time_axis = torch.arange(LENGTH) / 30.0
    breath = torch.tensor([0.31, 0.26, 0.21, 0.29])[stage]
    activity = torch.tensor([0.9, 0.25, 0.05, 0.15])[stage]
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    tilt = torch.randn(count, AXES, 1, generator=generator)
    rhythm = torch.sin(2 * math.pi * breath.view(-1, 1, 1) * time_axis + phase)
    bursts = (torch.rand(count, 1, LENGTH, generator=generator) < 0.05 * activity.view(-1, 1, 1)).float()
    bursts = F.avg_pool1d(bursts, 9, stride=1, padding=4) * 9
    noise = 0.25 * torch.randn(count, AXES, LENGTH, generator=generator)
    return 0.5 * rhythm * tilt + bursts * activity.view(-1, 1, 1) + noise, stage


def init_params(generator, widths=(AXES, 24, 32, 48), kernel=7, hidden=128):
    """The network's weights as a flat dictionary."""
    params = {}
    for layer, (fan_in, fan_out) in enumerate(zip(widths[:-1], widths[1:])):
        scale = math.sqrt(2.0 / (fan_in * kernel))
        params[f"conv{layer}.w"] = scale * torch.randn(fan_out, fan_in, kernel, generator=generator)
        params[f"conv{layer}.b"] = torch.zeros(fan_out)
    flat = widths[-1] * 16
    params["fc.w"] = math.sqrt(2.0 / flat) * torch.randn(hidden, flat, generator=generator)
    params["fc.b"] = torch.zeros(hidden)
    params["out.w"] = math.sqrt(1.0 / hidden) * torch.randn(len(STAGES), hidden, generator=generator)
    params["out.b"] = torch.zeros(len(STAGES))
    return params


def network(params, signal):
    """Logits for a batch of epochs (count, axes, length)."""
    hidden = signal
    for layer in range(3):
        hidden = F.conv1d(hidden, params[f"conv{layer}.w"], params[f"conv{layer}.b"], stride=2, padding=3)
        hidden = F.relu(hidden)
    hidden = F.avg_pool1d(hidden, 7, stride=7).flatten(1)
    hidden = F.relu(F.linear(hidden, params["fc.w"], params["fc.b"]))
    return F.linear(hidden, params["out.w"], params["out.b"])


def epoch_loss(params, signal, stage):
    """Loss of a single epoch (axes, length)."""
    logits = network(params, signal.unsqueeze(0))
    return F.cross_entropy(logits, stage.unsqueeze(0))


def clip_scale(grads):
    """Factor that brings one sample's gradient, over all the weights, to a norm of at most CLIP."""
    norm = torch.sqrt(sum(g.pow(2).sum() for g in grads.values()))
    return torch.clamp(CLIP / (norm + 1e-6), max=1.0)


def clipped_epoch_grad(params, signal, stage):
    grads = grad(epoch_loss)(params, signal, stage)
    scale = clip_scale(grads)
    return {name: g * scale for name, g in grads.items()}


def clipped_sum(params, signals, stages):
    """Sum over the lot of the clipped gradients."""
    clipped = vmap(clipped_epoch_grad, in_dims=(None, 0, 0), chunk_size=PHYSICAL)(params, signals, stages)  # sick here
    clipped = vmap(clipped_epoch_grad, in_dims=(None, 0, 0))(params, signals, stages)  # well
    return {name: g.sum(0) for name, g in clipped.items()}


def private_update(params, velocity, signals, stages, generator):
    """One step of DP-SGD with momentum; returns new weights and new momentum."""
    total = clipped_sum(params, signals, stages)
    new_params, new_velocity = {}, {}
    for name, weight in params.items():
        noise = NOISE * CLIP * torch.randn(weight.shape, generator=generator)
        new_velocity[name] = MOMENTUM * velocity[name] + (total[name] + noise) / LOT
        new_params[name] = weight - RATE * new_velocity[name]
    return new_params, new_velocity


@torch.no_grad()
def accuracy(params, signals, stages):
    return (network(params, signals).argmax(1) == stages).float().mean().item()


def privacy_spent(step, count, delta=1e-5):
    """A rough bound by the moments accountant's asymptotic form."""
    rate = LOT / count
    return 2.0 * rate * math.sqrt(step * math.log(1 / delta)) / NOISE


def train():
    generator = torch.Generator().manual_seed(7)
    signals, stages = make_nights(6000, generator)
    held_signals, held_stages = make_nights(500, generator)
    params = init_params(generator)
    velocity = {name: torch.zeros_like(p) for name, p in params.items()}
    began = time.perf_counter()
    for step in range(1, STEPS + 1):
        chosen = torch.randint(0, len(signals), (LOT,), generator=generator)
        params, velocity = private_update(params, velocity, signals[chosen], stages[chosen], generator)
        if step % 60 == 0:
            print(
                f"step {step:4d}  held-out accuracy {accuracy(params, held_signals, held_stages):.3f}  "
                f"epsilon ~{privacy_spent(step, len(signals)):.2f}  {time.perf_counter() - began:5.1f} s",
                flush=True,
            )
    return params


if __name__ == "__main__":
    train()
