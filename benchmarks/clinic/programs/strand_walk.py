# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "ropewalk strands"
# ///
"""Share of load and breaking strain of the yarns in a laid strand, from the ropewalk's spinning records.

A strand's cross-section is a hexagonal packing of yarns; neighbouring yarns press on one another. The network passes
messages along these contacts and predicts the strain of each yarn and the load at which the strand parts.
"""

import math
import time

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

RINGS = 3
FEATURES = 6
GRAPHS_PER_BATCH = 24


def hexagonal_packing(rings):
    """Axial coordinates of the yarns and the directed contacts between neighbours."""
    cells = [(q, r) for q in range(-rings, rings + 1) for r in range(-rings, rings + 1) if abs(q + r) <= rings]
    index = {cell: i for i, cell in enumerate(cells)}
    steps = [(1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)]
    contacts = [(index[c], index[c[0] + a, c[1] + b]) for c in cells for a, b in steps if (c[0] + a, c[1] + b) in index]
    place = torch.tensor([(q + r / 2, r * math.sqrt(3) / 2) for q, r in cells])
    return place, torch.tensor(contacts).T


class Strands(Dataset):
    """Strands with random spinning faults: slack yarns, uneven tar, twist that drifts along the walk."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.place, self.contacts = hexagonal_packing(RINGS)
        n = len(self.place)
        radius = self.place.norm(dim=1)
        twist = 18 + 6 * torch.rand(count, 1, generator=g) + 1.5 * torch.randn(count, n, generator=g)
        width = 1 + 0.08 * torch.randn(count, n, generator=g)
        tar = (0.15 + 0.04 * torch.randn(count, n, generator=g)).clamp(0, 0.4)
        slack = (torch.rand(count, n, generator=g) < 0.06).float() * torch.rand(count, n, generator=g)
        lay = radius * torch.tan(torch.deg2rad(twist)) * 0.12
        own = 1 - slack - 0.3 * lay**2 - 0.5 * (tar - 0.15)
        near = torch.zeros(count, n).index_add_(1, self.contacts[1], slack[:, self.contacts[0]])
        self.strain = own + 0.12 * near + 0.01 * torch.randn(count, n, generator=g)
        strength = (width**2 * (1 - 0.4 * slack)).sum(dim=1)
        self.load = strength / self.strain.max(dim=1).values / n
        columns = [twist / 10 - 2, width * 5 - 5, tar * 10 - 1.5, slack, radius.expand(count, n) / RINGS, lay]
        self.yarns = torch.stack(columns, dim=-1)

    def __len__(self):
        return len(self.load)

    def __getitem__(self, i):
        return self.yarns[i], self.strain[i], self.load[i]

    def collate(self, items):
        yarns, strain, load = (torch.stack(part) for part in zip(*items))
        graphs, n = strain.shape
        shift = (torch.arange(graphs) * n).view(-1, 1, 1)
        contacts = (self.contacts.unsqueeze(0) + shift).transpose(0, 1).reshape(2, -1)
        span = (self.place[self.contacts[1]] - self.place[self.contacts[0]]).repeat(graphs, 1)
        owner = torch.arange(graphs).repeat_interleave(n)
        return {
            "yarns": yarns.reshape(graphs * n, -1),
            "contacts": contacts,
            "span": span,
            "owner": owner,
            "strain": strain.reshape(-1),
            "load": load,
        }


class ContactRound(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.press = nn.Sequential(nn.Linear(2 * width + 2, width), nn.SiLU(), nn.Linear(width, width))
        self.gate = nn.Linear(width, 1)
        self.settle = nn.GRUCell(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, state, contacts, span):
        source, target = contacts
        message = self.press(torch.cat([state[source], state[target], span], dim=-1))
        message = message * torch.sigmoid(self.gate(message))
        gathered = torch.zeros_like(state).index_add(0, target, message)
        return self.norm(state + self.settle(gathered, state))


class StrandModel(L.LightningModule):
    def __init__(self, width=64, rounds=3, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.spin = nn.Sequential(nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width))
        self.rounds = nn.ModuleList(ContactRound(width) for _ in range(rounds))
        self.to_strain = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.to_load = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 1))
        self.began = self.ended = None

    def forward(self, batch):
        state = self.spin(batch["yarns"])
        for step in self.rounds:
            state = step(state, batch["contacts"], batch["span"])
        graphs = len(batch["load"])
        total = torch.zeros(graphs, state.shape[1]).index_add(0, batch["owner"], state)
        worst = state.view(graphs, -1, state.shape[1]).amax(dim=1)
        load = self.to_load(torch.cat([total / (len(state) / graphs), worst], dim=-1)).squeeze(-1)
        return self.to_strain(state).squeeze(-1), load

    def losses(self, batch):
        strain, load = self(batch)
        return F.smooth_l1_loss(strain, batch["strain"], beta=0.1), F.mse_loss(load, batch["load"])

    def on_train_batch_start(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        strain, load = self.losses(batch)
        self.log_dict({"strain": strain, "load": load}, batch_size=len(batch["load"]))
        return strain + 0.5 * load

    def validation_step(self, batch, batch_idx):
        strain, load = self.losses(batch)
        self.log_dict({"val_strain": strain, "val_load": load}, batch_size=len(batch["load"]))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            seen = self.trainer.callback_metrics
            print(f"epoch {self.current_epoch}: strain {seen['val_strain']:.4f}, load {seen['val_load']:.4f}")

    def on_train_end(self):
        self.ended = time.perf_counter()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    L.seed_everything(1845)
    train, held = Strands(2880, seed=3), Strands(240, seed=4)
    loaders = [
        DataLoader(train, GRAPHS_PER_BATCH, shuffle=True, collate_fn=train.collate),
        DataLoader(held, 48, collate_fn=held.collate),
    ]
    model = StrandModel()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=3,
        gradient_clip_val=1.0,
        detect_anomaly=True,  # sick here
        logger=CSVLogger("."),
        log_every_n_steps=20,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, *loaders)
    rate = trainer.global_step * GRAPHS_PER_BATCH / (model.ended - model.began)
    print(f"{rate:.1f} strands/s")


if __name__ == "__main__":
    main()
