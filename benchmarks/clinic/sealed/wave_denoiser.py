# /// clinic
# stratum = "placebo"
# domain = "diffusion"
# ///
"""Score matching on short wave packets, written functionally: one flat vector of weights, torch.func for the gradient,
and the update (Adam with decoupled decay) by hand."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

POINTS = 96


def packets(count, gen):
    t = torch.linspace(-1, 1, POINTS)
    centre = torch.rand(count, 1, generator=gen) - 0.5
    pitch = 6 + 20 * torch.rand(count, 1, generator=gen)
    return torch.exp(-(((t - centre) / 0.3) ** 2)) * torch.cos(pitch * t)


def network():
    return nn.Sequential(
        nn.Linear(POINTS + 1, 384),
        nn.SiLU(),
        nn.Linear(384, 384),
        nn.SiLU(),
        nn.Linear(384, 384),
        nn.SiLU(),
        nn.Linear(384, POINTS),
    )


class Flat:
    """Named views into one vector."""

    def __init__(self, net):
        shapes = [(name, p.shape, p.numel()) for name, p in net.named_parameters()]
        self.names = [name for name, _, _ in shapes]
        self.shapes = [shape for _, shape, _ in shapes]
        self.sizes = [size for _, _, size in shapes]
        self.vector = torch.cat([p.detach().flatten() for p in net.parameters()])

    def views(self):
        parts = self.vector.split(self.sizes)
        return {n: part.view(shape) for n, part, shape in zip(self.names, parts, self.shapes)}

    def gather(self, grads):
        return torch.cat([grads[n].flatten() for n in self.names])


class Adam:
    def __init__(self, like, rate=1e-3, decay=1e-4):
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.rate, self.decay, self.t = rate, decay, 0

    @torch.no_grad()
    def update(self, weights, grad):
        self.t += 1
        self.first.lerp_(grad, 0.1)
        self.second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        bias1, bias2 = 1 - 0.9**self.t, 1 - 0.999**self.t
        spread = (self.second / bias2).sqrt_().add_(1e-8)
        weights.mul_(1 - self.rate * self.decay).addcdiv_(self.first, spread, value=-self.rate / bias1)


def make_loss(net):
    def loss(weights, clean, noise, level):
        noisy = clean + level * noise
        guess = functional_call(net, weights, (torch.cat([noisy, level.log()], dim=1),))
        return (guess - noise).square().mean()

    return loss


def main(steps=500, batch=512, skip=8, per_epoch=125):
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(4)
    data, net = packets(20_000, gen), network()
    flat = Flat(net)
    adam = Adam(flat.vector)
    views = flat.views()
    gradient = grad_and_value(make_loss(net))
    handle, path = tempfile.mkstemp(suffix=".pt")
    os.close(handle)
    total = torch.zeros(())
    for step in range(steps):
        if step == skip:
            begun = time.perf_counter()
        clean = data[torch.randint(0, len(data), (batch,), generator=gen)]
        noise = torch.randn(batch, POINTS, generator=gen)
        level = torch.exp(torch.empty(batch, 1).uniform_(-3, 0.5, generator=gen))
        grads, value = gradient(views, clean, noise, level)
        adam.update(flat.vector, flat.gather(grads))
        total += value
        if (step + 1) % per_epoch == 0:
            torch.save(flat.vector, path)
            print(f"epoch {(step + 1) // per_epoch}: {total.item() / per_epoch:.4f}")
            total.zero_()
    rate = (steps - skip) * batch / (time.perf_counter() - begun)
    os.unlink(path)
    print(f"{rate:.1f} packets/s")


if __name__ == "__main__":
    main()
