# /// clinic
# expect = ["PD10.inverse-then-product"]
# stratum = "twins"
# domain = "sizing the bars of a truss bridge through a differentiable finite-element model"
# ///
"""Trains a network that sizes the bars of a truss bridge for a given load case.

The network sees the loads on the deck and proposes the cross-section of every bar; a differentiable finite-element model
gives the displacements, and the loss is compliance plus the price of the steel.
"""

import time

import torch
from torch import nn


PANELS = 48
PANEL_LENGTH = 3.0
HEIGHT = 4.0
YOUNG = 210.0  # GPa
PRICE = 0.004
BATCH = 32
STEPS = 700


def build_truss():
    """Nodes and bars of a Warren truss with verticals; the first and last lower nodes rest on supports."""
    lower = [(i * PANEL_LENGTH, 0.0) for i in range(PANELS + 1)]
    upper = [(i * PANEL_LENGTH, HEIGHT) for i in range(1, PANELS)]
    nodes = torch.tensor(lower + upper)

    def up(i):
        return PANELS + i

    bars = [(i, i + 1) for i in range(PANELS)]
    bars += [(up(i), up(i + 1)) for i in range(1, PANELS - 1)]
    bars += [(i, up(i)) for i in range(1, PANELS)]
    bars += [(i, up(i + 1)) for i in range(PANELS - 1)]
    bars += [(up(i), i + 1) for i in range(1, PANELS)]
    return nodes, torch.tensor(bars)


def free_dof_map(node_count: int):
    """Number of every degree of freedom among the free ones; the fixed ones all share the last, spare number."""
    fixed = {1, 2 * PANELS + 1}
    fixed.add(0)
    mapping, number = [], 0
    for dof in range(2 * node_count):
        if dof in fixed:
            mapping.append(-1)
        else:
            mapping.append(number)
            number += 1
    return torch.tensor([number if m < 0 else m for m in mapping]), number


def element_matrices(nodes, bars):
    """Unit stiffness (area 1) of every bar in global coordinates, and its length."""
    span = nodes[bars[:, 1]] - nodes[bars[:, 0]]
    length = span.norm(dim=1)
    c = span / length[:, None]
    direction = torch.cat([-c, c], dim=1)
    return YOUNG / length[:, None, None] * direction[:, :, None] * direction[:, None, :], length


class Bridge:
    def __init__(self):
        nodes, bars = build_truss()
        self.units, self.lengths = element_matrices(nodes, bars)
        self.dof_of, self.size = free_dof_map(len(nodes))
        dofs = self.dof_of[torch.stack([2 * bars[:, 0], 2 * bars[:, 0] + 1, 2 * bars[:, 1], 2 * bars[:, 1] + 1], dim=1)]
        width = self.size + 1
        self.slots = (dofs[:, :, None] * width + dofs[:, None, :]).flatten()
        self.deck = self.dof_of[torch.tensor([2 * i + 1 for i in range(1, PANELS)])]

    def stiffness(self, areas):
        """(batch, bars) areas -> (batch, dofs, dofs) stiffness matrices."""
        width = self.size + 1
        entries = (areas[:, :, None, None] * self.units).flatten(1)
        full = entries.new_zeros(len(areas), width * width).index_add(1, self.slots, entries)
        return full.view(-1, width, width)[:, : self.size, : self.size]

    def displacements(self, areas, forces):
        stiffness = self.stiffness(areas)
        flexibility = torch.linalg.inv(stiffness)  # sick here
        return torch.bmm(flexibility, forces.unsqueeze(-1)).squeeze(-1)  # sick here
        return torch.linalg.solve(stiffness, forces)  # well


def sample_loads(bridge: Bridge, generator: torch.Generator):
    """Own weight on the deck and two lorries somewhere on it."""
    count = len(bridge.deck)
    load = torch.full((BATCH, count), 0.02)
    place = torch.rand(BATCH, 2, 1, generator=generator) * (count - 1)
    weight = 0.1 + 0.2 * torch.rand(BATCH, 2, 1, generator=generator)
    load += (weight * torch.exp(-((torch.arange(count) - place) ** 2) / 4.0)).sum(dim=1)
    forces = torch.zeros(BATCH, bridge.size)
    forces[:, bridge.deck] = -load
    return load, forces


def build_sizer(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, outputs))


def design_loss(bridge: Bridge, areas, forces):
    moved = bridge.displacements(areas, forces)
    compliance = (moved * forces).sum(dim=1)
    steel = (areas * bridge.lengths).sum(dim=1)
    return (compliance.log() + PRICE * steel).mean(), compliance.detach().mean(), steel.detach().mean()


def train() -> None:
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(17)
    bridge = Bridge()
    sizer = build_sizer(len(bridge.deck), len(bridge.lengths))
    optimizer = torch.optim.Adam(sizer.parameters(), lr=1e-3, fused=True)
    print(f"{len(bridge.lengths)} bars, {bridge.size} degrees of freedom")
    began = time.perf_counter()
    for step in range(1, STEPS + 1):
        load, forces = sample_loads(bridge, generator)
        areas = 0.05 + nn.functional.softplus(sizer(10.0 * load))
        loss, compliance, steel = design_loss(bridge, areas, forces)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(
                f"step {step} loss {loss.item():.4f} compliance {compliance:.4f} steel {steel:.1f} "
                f"{(time.perf_counter() - began) / step * 1e3:.1f} ms/step",
                flush=True,
            )


if __name__ == "__main__":
    train()
