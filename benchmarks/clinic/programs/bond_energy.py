# /// clinic
# expect = ["PD05.batch-too-small"]
# stratum = "twins"
# domain = "molecules"
# ///
"""Atomisation energies of small molecules with dense message passing."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

ATOMS, KINDS = 16, 6


@dataclass
class Settings:
    hidden: int = 64
    rounds: int = 3
    batch: int = 4  # sick here
    batch: int = 64  # well
    molecules: int = 3200
    epochs: int = 3
    lr: float = 1e-3
    centres: Tensor = field(default_factory=lambda: torch.linspace(0.5, 5.0, 12))


def molecules(count: int) -> tuple[Tensor, Tensor, Tensor]:
    kinds = torch.randint(0, KINDS, (count, ATOMS))
    places = torch.randn(count, ATOMS, 3) * 1.6
    distance = torch.cdist(places, places)
    charge = kinds.float() + 1
    pair = charge[:, :, None] * charge[:, None, :] * torch.exp(-distance)
    energy = (pair.sum((1, 2)) - pair.diagonal(dim1=1, dim2=2).sum(1)) / 50
    return kinds, places, (energy - energy.mean()) / energy.std()


class Round(nn.Module):
    def __init__(self, hidden: int, basis: int):
        super().__init__()
        self.filters = nn.Linear(basis, hidden)
        self.send = nn.Linear(hidden, hidden, bias=False)
        self.update = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, nodes: Tensor, basis: Tensor) -> Tensor:
        gates = self.filters(basis)
        message = torch.einsum("bijh,bjh->bih", gates, self.send(nodes))
        return nodes + self.update(message / ATOMS)


class EnergyNet(nn.Module):
    def __init__(self, cfg: Settings):
        super().__init__()
        self.register_buffer("centres", cfg.centres)
        self.embed = nn.Embedding(KINDS, cfg.hidden)
        self.rounds = nn.ModuleList(Round(cfg.hidden, len(cfg.centres)) for _ in range(cfg.rounds))
        self.readout = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, 1))

    def forward(self, kinds: Tensor, places: Tensor) -> Tensor:
        distance = torch.cdist(places, places)
        basis = torch.exp(-4 * (distance.unsqueeze(-1) - self.centres) ** 2)
        nodes = self.embed(kinds)
        for layer in self.rounds:
            nodes = layer(nodes, basis)
        return self.readout(nodes).sum((1, 2))


class Fitter:
    def __init__(self, cfg: Settings):
        self.cfg = cfg
        self.net = EnergyNet(cfg)
        self.data = molecules(cfg.molecules)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)

    def one_step(self, pick: Tensor) -> Tensor:
        kinds, places, energy = (part[pick] for part in self.data)  # here
        loss = torch.nn.functional.mse_loss(self.net(kinds, places), energy)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach() * len(pick)

    def fit(self) -> float:
        seen, begun = 0, None
        for epoch in range(self.cfg.epochs):
            total = torch.zeros(())
            for pick in torch.randperm(self.cfg.molecules).split(self.cfg.batch):
                total += self.one_step(pick)
                if begun is not None:
                    seen += len(pick)
                elif epoch == 0:
                    begun = time.perf_counter()
            print(f"epoch {epoch}: mse {total.item() / self.cfg.molecules:.4f}")
        return seen / (time.perf_counter() - begun)


if __name__ == "__main__":
    torch.manual_seed(17)
    print(f"{Fitter(Settings()).fit():.1f} molecules/s")
