# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "physics and simulation surrogates"
# ///
"""Learn an eddy viscosity for 2D turbulence by differentiating through a pseudo-spectral solver.

A small network predicts the viscosity field from pooled invariants of the flow, once in each time step; the vorticity equation is
unrolled for a few Runge-Kutta steps and the trajectory is fitted to a reference simulation with a Leith model.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value


N = 64
DT = 0.02
VISC = 2e-4
UNROLL = 4
BATCH = 12
POOL = 4


def wavenumbers(n):
    """Angular wavenumbers on the half plane of a real transform, with the dealiasing mask and the inverse Laplacian."""
    kx = np.fft.fftfreq(n, 1.0 / n)[:, None] * np.ones((1, n // 2 + 1))
    ky = np.fft.rfftfreq(n, 1.0 / n)[None, :] * np.ones((n, 1))
    kx, ky = torch.from_numpy(kx), torch.from_numpy(ky)  # sick here
    kx, ky = torch.from_numpy(kx).float(), torch.from_numpy(ky).float()  # well
    k2 = kx**2 + ky**2
    inv_k2 = torch.where(k2 > 0, 1.0 / k2.clamp_min(1.0), torch.zeros_like(k2))
    keep = ((kx.abs() < n / 3) & (ky.abs() < n / 3)).to(kx.dtype)
    return kx, ky, k2, inv_k2, keep


class SpectralSolver(nn.Module):
    """Incompressible Navier-Stokes in vorticity form on the periodic square [0, 2 pi]^2."""

    def __init__(self, n=N, visc=VISC):
        super().__init__()
        self.n, self.visc = n, visc
        for name, value in zip(("kx", "ky", "k2", "inv_k2", "keep"), wavenumbers(n)):
            self.register_buffer(name, value)
        y = torch.arange(n, dtype=self.kx.dtype) * (2 * np.pi / n)
        self.register_buffer("stirring", 0.5 * torch.cos(4 * y).expand(n, n).contiguous())

    def to_grid(self, field_hat):
        return torch.fft.irfft2(field_hat, s=(self.n, self.n))

    def gradient(self, f_hat):
        return self.to_grid(1j * self.kx * f_hat), self.to_grid(1j * self.ky * f_hat)

    def rhs(self, w, eddy):
        w_hat = torch.fft.rfft2(w) * self.keep
        psi_x, psi_y = self.gradient(w_hat * self.inv_k2)
        w_x, w_y = self.gradient(w_hat)
        flux_x_hat, flux_y_hat = torch.fft.rfft2(eddy * w_x), torch.fft.rfft2(eddy * w_y)
        spread_hat = 1j * (self.kx * flux_x_hat + self.ky * flux_y_hat) - self.visc * self.k2 * w_hat
        return self.to_grid(spread_hat * self.keep) - psi_y * w_x + psi_x * w_y + self.stirring - 0.05 * w

    def step(self, w, viscosity_model, dt=DT):
        """Classical Runge-Kutta with the eddy viscosity frozen over the step."""
        eddy = viscosity_model(w, *self.gradient(torch.fft.rfft2(w) * self.keep))
        k1 = self.rhs(w, eddy)
        k2 = self.rhs(w + 0.5 * dt * k1, eddy)
        k3 = self.rhs(w + 0.5 * dt * k2, eddy)
        k4 = self.rhs(w + dt * k3, eddy)
        return w + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def leith(w, w_x, w_y):
    """Viscosity proportional to the gradient of the vorticity; the reference simulation uses it."""
    return 2.5 * (2 * np.pi / N) ** 3 * torch.sqrt(w_x**2 + w_y**2)


class ViscosityNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, width, 1), nn.SiLU(), nn.Conv2d(width, 1, 1)
        )
        self.register_buffer("scale", torch.tensor([16.0, 400.0]).view(1, 2, 1, 1))

    def forward(self, w, w_x, w_y):
        invariants = torch.stack([w**2, w_x**2 + w_y**2], 1).float()
        coarse = F.avg_pool2d(invariants, POOL) / self.scale
        eddy = 0.02 * F.softplus(self.net(coarse) - 1)
        return F.interpolate(eddy, scale_factor=POOL, mode="nearest").squeeze(1)


def random_vorticity(n_fields, n, generator):
    k = np.fft.fftfreq(n, 1.0 / n)
    radius = torch.from_numpy(np.hypot(k[:, None], k[None, : n // 2 + 1])).float()
    amplitude = radius * torch.exp(-((radius / 6) ** 2))
    phase = torch.randn(n_fields, n, n // 2 + 1, 2, generator=generator)
    w = torch.fft.irfft2(torch.view_as_complex(phase) * amplitude, s=(n, n))
    return 4 * w / w.std(dim=(1, 2), keepdim=True)


@torch.no_grad()
def reference_trajectories(solver, n_fields, n_snapshots, seed):
    w = random_vorticity(n_fields, solver.n, torch.Generator().manual_seed(seed))
    frames = [w]
    for _ in range(n_snapshots):
        w = solver.step(w, leith)
        frames.append(w.float())
    return torch.stack(frames, 1)


def make_loss(net, solver):
    def loss_fn(params, buffers, start, target):
        def viscosity(*fields):
            return functional_call(net, (params, buffers), fields)

        w, loss = start, 0.0
        for i in range(UNROLL):
            w = solver.step(w, viscosity)
            loss = loss + ((w - target[:, i]) ** 2).mean()
        return 1e3 * loss / UNROLL

    return loss_fn


def windows(frames, batch, generator):
    """Random start times of random trajectories."""
    which = torch.randint(frames.shape[0], (batch,), generator=generator)
    when = torch.randint(frames.shape[1] - UNROLL, (batch,), generator=generator)
    clips = frames[which.unsqueeze(1), when.unsqueeze(1) + torch.arange(UNROLL + 1)]
    return clips[:, 0], clips[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)

    solver, net = SpectralSolver(), ViscosityNet()
    frames = reference_trajectories(solver, n_fields=12, n_snapshots=30, seed=5)
    params = {k: p.detach().clone() for k, p in net.named_parameters()}
    buffers = dict(net.named_buffers())
    optimizer = torch.optim.Adam(params.values(), lr=args.lr, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    value_and_grads = grad_and_value(make_loss(net, solver))

    began, running = time.perf_counter(), []
    for step in range(1, args.steps + 1):
        start, target = windows(frames, BATCH, generator)
        grads, loss = value_and_grads(params, buffers, start, target)
        for name, p in params.items():
            p.grad = grads[name]
        optimizer.step()
        schedule.step()
        running.append(loss)
        if step % 20 == 0:
            mean = torch.stack(running).mean().item()
            running.clear()
            took = 1000 * (time.perf_counter() - began) / step
            print(f"step {step:4d}  trajectory error {mean:.4f}  {took:.0f} ms/step", flush=True)


if __name__ == "__main__":
    main()
