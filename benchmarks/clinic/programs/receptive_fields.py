# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "population receptive fields of visual cortex from fMRI (torch.func)"
# ///
"""Population receptive fields from a bar-stimulus scan, for all voxels of a region at once.

Each voxel sees the screen through an elliptical Gaussian window; what it sees is convolved with a haemodynamic response
that all voxels share and that is learned too. Written with torch.func: parameters are a dictionary, losses are pure
functions of one voxel, vmap spreads them over the region.
"""

import math
import time

import numpy as np
import torch
from torch.func import grad_and_value, vmap


SCREEN = 48  # pixels along a side
EXTENT = 10.0  # degrees from the centre to the edge
VOXELS = 420
VOLUMES = 180  # scan volumes, one each 1.5 s
TAPS = 14  # length of the response, in volumes
STEPS = 500


def as_tensor(array):
    """The scanner's toolbox hands over NumPy arrays; everything goes to torch through here."""
    return torch.from_numpy(np.ascontiguousarray(array))  # sick here
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))  # well


def screen_grid():
    axis = np.linspace(-EXTENT, EXTENT, SCREEN)
    across, down = np.meshgrid(axis, axis)
    return across.ravel(), down.ravel()


def bar_apertures(across, down, rng):
    """Bars that sweep over the screen in eight directions, with blank volumes between the sweeps."""
    frames = np.zeros((VOLUMES, across.size))
    sweep = VOLUMES // 9
    for volume in range(VOLUMES):
        direction, step = divmod(volume, sweep)
        if direction >= 8:
            continue
        angle = direction * math.pi / 4
        along = across * math.cos(angle) + down * math.sin(angle)
        middle = -EXTENT + 2 * EXTENT * (step + 0.5) / sweep
        contrast = 0.9 + 0.1 * rng.random()
        frames[volume] = contrast * (np.abs(along - middle) < 1.5) * (across**2 + down**2 < EXTENT**2)
    return frames


def double_gamma(seconds):
    rise = seconds**5 * np.exp(-seconds) / math.gamma(6)
    dip = seconds**15 * np.exp(-seconds) / math.gamma(16)
    return rise - dip / 6


def simulate(frames, across, down, rng):
    """Time courses of voxels with known receptive fields, with scanner noise."""
    centre_x = rng.uniform(-6, 6, VOXELS)
    centre_y = rng.uniform(-6, 6, VOXELS)
    size = rng.uniform(0.6, 2.5, (2, VOXELS, 1))
    tilt = rng.uniform(0, math.pi, (VOXELS, 1))
    right, below = across - centre_x[:, None], down - centre_y[:, None]
    major = (right * np.cos(tilt) + below * np.sin(tilt)) / size[0]
    minor = (below * np.cos(tilt) - right * np.sin(tilt)) / size[1]
    seen = np.exp(-0.5 * (major**2 + minor**2)) @ frames.T
    response = double_gamma(np.arange(TAPS) * 1.5)
    bold = np.stack([np.convolve(row, response)[:VOLUMES] for row in seen])
    bold /= bold.std(axis=1, keepdims=True)
    return bold + 0.4 * rng.standard_normal(bold.shape), np.stack([centre_x, centre_y], axis=1)


def initial_parameters(generator):
    spread = torch.rand(VOXELS, 2, generator=generator) * 6 - 3
    return {
        "centre": spread,
        "log_sizes": torch.full((VOXELS, 2), math.log(2.0)),
        "tilt": torch.zeros(VOXELS),
        "gain": torch.ones(VOXELS),
        "baseline": torch.zeros(VOXELS),
    }


def predict(voxel, response, stimulus, grid):
    """The time course that one voxel should have."""
    across, down = grid - voxel["centre"].unsqueeze(-1)
    cosine, sine = torch.cos(voxel["tilt"]), torch.sin(voxel["tilt"])
    size = torch.exp(voxel["log_sizes"])
    major = across * (cosine / size[0]) + down * (sine / size[0])
    minor = down * (cosine / size[1]) - across * (sine / size[1])
    window = torch.exp(-0.5 * (major.square() + minor.square()))
    drive = (stimulus @ window) / (2 * math.pi * size.prod())
    delayed = torch.nn.functional.pad(drive, (TAPS - 1, 0)).unfold(0, TAPS, 1)
    return voxel["gain"] * (delayed * response.flip(0)).sum(-1) + voxel["baseline"]


def voxel_loss(voxel, response, stimulus, grid, bold):
    error = predict(voxel, response, stimulus, grid) - bold
    shrink = 1e-3 * voxel["log_sizes"].square().sum()
    return error.square().mean() + shrink


def region_loss(parameters, response, stimulus, grid, bold):
    each = vmap(voxel_loss, in_dims=(0, None, None, None, 0))(parameters, response, stimulus, grid, bold)
    smooth = (response[1:] - response[:-1]).square().sum()
    return each.mean() + 1e-2 * smooth


def adam(tree, gradients, state, step, rate, decay=(0.9, 0.99), tiny=1e-8):
    """One pure step of Adam: new parameters and new moments."""
    new_tree, new_state = {}, {}
    for name, value in tree.items():
        first, second = state[name]
        first = first * decay[0] + gradients[name] * (1 - decay[0])
        second = second * decay[1] + gradients[name].square() * (1 - decay[1])
        unbiased = first / (1 - decay[0] ** step)
        scale = (second / (1 - decay[1] ** step)).sqrt() + tiny
        new_tree[name] = value - rate * unbiased / scale
        new_state[name] = (first, second)
    return new_tree, new_state


def main():
    rng = np.random.default_rng(5)
    across, down = screen_grid()
    frames = bar_apertures(across, down, rng)
    bold, truth = simulate(frames, across, down, rng)

    grid = as_tensor(np.stack([across, down]))  # here
    stimulus = as_tensor(frames)  # here
    bold = as_tensor(bold)  # here

    tree = initial_parameters(torch.Generator().manual_seed(5))
    tree["response"] = torch.linspace(1.0, 0.0, TAPS)
    state = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in tree.items()}

    def objective(tree):
        voxels = {name: value for name, value in tree.items() if name != "response"}
        return region_loss(voxels, tree["response"], stimulus, grid, bold)

    step_gradients = grad_and_value(objective)
    started = time.time()
    for step in range(1, STEPS + 1):
        gradients, loss = step_gradients(tree)
        rate = 0.05 * min(1.0, 2 * (1 - step / (STEPS + 1)))
        tree, state = adam(tree, gradients, state, step, rate)
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  {time.time() - started:5.1f} s", flush=True)

    distance = np.linalg.norm(tree["centre"].numpy() - truth, axis=1)
    print(
        f"centres within half a degree: {np.mean(distance < 0.5):.1%}, median error {np.median(distance):.2f} degrees"
    )


if __name__ == "__main__":
    main()
