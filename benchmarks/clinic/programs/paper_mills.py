# /// clinic
# expect = ["PD20.logging", "PD13.second-pool"]
# stratum = "twins"
# domain = "paper mills"
# ///
"""Variational autoencoder for the drift of a paper machine (wire section, presses, dryers).

The training skeleton (Model / CallbackList / TensorBoard) mirrors our Keras 2 code base, so that the operators'
old experiments can be compared one to one. Windows of 128 samples of 24 process tags.
"""

import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.tensorboard import SummaryWriter

TAGS, WINDOW = 24, 128


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--beta", type=float, default=0.05)
    p.add_argument("--log-dir", default="logs/pm4_vae")
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def machine_records(n_windows, seed):
    """Basis weight, moisture, vacuum, draw ... as mixtures of slow drifts, roll periods and noise."""
    rng = np.random.RandomState(seed)
    t = np.arange(WINDOW, dtype=np.float32)
    mix = rng.normal(0, 1, (6, TAGS)).astype(np.float32) / 2
    phase = rng.uniform(0, 2 * np.pi, (n_windows, 6, 1)).astype(np.float32)
    period = np.array([9, 13, 21, 34, 55, 89], dtype=np.float32)[None, :, None]
    gain = rng.gamma(2.0, 0.5, (n_windows, 6, 1)).astype(np.float32)
    sources = gain * np.sin(2 * np.pi * t / period + phase)
    data = np.einsum("nst,sc->nct", sources, mix)
    data += rng.normal(0, 0.2, data.shape).astype(np.float32)
    return torch.from_numpy(data.astype(np.float32))


class Callback:
    def set_model(self, model):
        self.model = model

    def on_train_begin(self):
        pass

    def on_batch_end(self, batch, logs):
        pass

    def on_epoch_end(self, epoch, logs):
        pass

    def on_train_end(self):
        pass


class CallbackList(Callback):
    def __init__(self, callbacks, model):
        self.callbacks = callbacks
        for c in callbacks:
            c.set_model(model)

    def call(self, hook, *args):
        for c in self.callbacks:
            getattr(c, hook)(*args)


class TensorBoard(Callback):
    """Like keras.callbacks.TensorBoard; histograms of the convolution kernels, histogram_freq=0 writes scalars only."""

    def __init__(self, log_dir, histogram_freq=0):
        self.log_dir, self.histogram_freq = log_dir, histogram_freq
        self.seen = 0

    def on_train_begin(self):
        self.writer = SummaryWriter(self.log_dir)

    def _histograms(self, step):
        for name, value in self.model.net.named_parameters():
            tag = name.replace(".", "/")
            if value.dim() == 3:
                self.writer.add_histogram(tag, value.data.cpu().numpy(), step)

    def on_batch_end(self, batch, logs):
        self.seen += 1
        if self.histogram_freq and self.seen % self.histogram_freq == 0:  # sick here
            self._histograms(self.seen)  # sick here

    def on_epoch_end(self, epoch, logs):
        for key, value in logs.items():
            self.writer.add_scalar(key, value, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:  # well
            self._histograms(epoch)  # well

    def on_train_end(self):
        self.writer.close()


class ModelCheckpoint(Callback):
    def __init__(self, path, monitor="val_loss"):
        self.path, self.monitor, self.best = path, monitor, np.inf

    def on_epoch_end(self, epoch, logs):
        if logs[self.monitor] < self.best:
            self.best = logs[self.monitor]
            torch.save(self.model.net.state_dict(), self.path)


class DriftVAE(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.enc1 = nn.Conv1d(TAGS, 32, 5, 2, 2)
        self.enc2 = nn.Conv1d(32, 64, 5, 2, 2)
        self.enc3 = nn.Conv1d(64, 64, 5, 2, 2)
        self.mu = nn.Linear(64 * 16, latent)
        self.logvar = nn.Linear(64 * 16, latent)
        self.up = nn.Linear(latent, 64 * 16)
        self.dec1 = nn.Conv1d(64, 64, 5, 1, 2)
        self.dec2 = nn.Conv1d(64, 32, 5, 1, 2)
        self.dec3 = nn.Conv1d(32, TAGS, 5, 1, 2)

    def forward(self, x):
        h = F.relu(self.enc3(F.relu(self.enc2(F.relu(self.enc1(x)))))).flatten(1)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        h = F.relu(self.up(z)).view(-1, 64, 16)
        h = F.relu(self.dec1(F.interpolate(h, scale_factor=2)))
        h = F.relu(self.dec2(F.interpolate(h, scale_factor=2)))
        return self.dec3(F.interpolate(h, scale_factor=2)), mu, logvar


class Model:
    def __init__(self, net, beta):
        self.net, self.beta = net, beta

    def compile(self, optimizer):
        self.optimizer = optimizer

    def losses(self, x):
        recon, mu, logvar = self.net(x)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return F.mse_loss(recon, x), kl

    def evaluate(self, x, batch_size):
        self.net.eval()
        with torch.no_grad():
            return float(np.mean([self.losses(part)[0].item() for part in x.split(batch_size)]))

    def fit(self, x, batch_size, epochs, validation_data, callbacks):
        hooks = CallbackList(callbacks, self)
        hooks.call("on_train_begin")
        for epoch in range(epochs):
            self.net.train()
            running = []
            for batch, index in enumerate(torch.randperm(len(x)).split(batch_size)):
                mse, kl = self.losses(x[index])
                self.optimizer.zero_grad()
                (mse + self.beta * kl).backward()
                self.optimizer.step()
                running.append(mse.item())
                hooks.call("on_batch_end", batch, {"loss": running[-1]})
            logs = {"loss": float(np.mean(running)), "val_loss": self.evaluate(validation_data, batch_size)}
            hooks.call("on_epoch_end", epoch, logs)
            print(f"Epoch {epoch + 1}/{epochs} - " + " - ".join(f"{k}: {v:.4f}" for k, v in logs.items()))
        hooks.call("on_train_end")


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    os.makedirs(args.log_dir, exist_ok=True)
    data = machine_records(11264, args.seed)
    data = (data - data.mean((0, 2), keepdim=True)) / data.std((0, 2), keepdim=True)
    x, held_out = data[:10240], data[10240:]
    model = Model(DriftVAE(), args.beta)
    model.compile(torch.optim.Adam(model.net.parameters(), lr=args.lr))
    callbacks = [TensorBoard(args.log_dir, histogram_freq=1), ModelCheckpoint(os.path.join(args.log_dir, "best.pt"))]
    began = time.time()
    model.fit(x, args.batch_size, args.epochs, held_out, callbacks)
    print(f"{args.epochs * len(x) / (time.time() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
