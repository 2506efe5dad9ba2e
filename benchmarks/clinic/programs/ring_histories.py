# /// clinic
# expect = ["PD03.transform"]
# stratum = "twins"
# domain = "peregrine rings"
# ///
"""Peregrine rings: will the next report of a bird be its last, and how far from the eyrie?

Takes the ring register (one nested record per bird with all its sightings, as the ringing scheme's web service gives
it) and fits a small transformer over the life histories.
"""

import copy  # sick
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

CONDITION = {"seen": 0, "trapped": 1, "chick": 2, "injured": 3, "camera": 4, "brood": 5}
LONGEST = 40
FEATURES = 9


@dataclass
class Config:
    birds: int = 6_144
    held_out_birds: int = 512
    batch: int = 64
    epochs: int = 6
    width: int = 64
    heads: int = 4
    lr: float = 1e-3
    lost_reports: float = 0.15
    seed: int = 3


def register(birds, seed):
    """Life histories: ringed as a chick, then seen at quarries, spires and pylons, more seldom with the years."""
    rng = np.random.default_rng(seed)
    places = np.stack([rng.uniform(50, 58.5, 300), rng.uniform(-5, 1.5, 300)], axis=1)
    kinds = list(CONDITION)
    records = []
    for bird in range(birds):
        n = int(rng.integers(28, LONGEST + 1))
        bold = rng.random()
        home = int(rng.integers(0, len(places)))
        days = (rng.integers(0, 3650) + rng.exponential(40, n).cumsum()).round(2).tolist()
        site = np.where(rng.random(n) < 0.15 + 0.6 * bold, rng.integers(0, len(places), n), home)
        where, kind = places[site].tolist(), rng.integers(0, len(kinds), n).tolist()
        sightings = [
            {
                "day": day,
                "hour": int(24 * day) % 24,
                "place": {"site": s, "lat": lat, "lon": lon, "precision_km": 0.5 + s % 5},
                "condition": kinds[k],
                "leg": {"left": "metal", "right": "darvic"},
                "finder": "public" if k % 2 else "ringer",
            }
            for day, s, (lat, lon), k in zip(days, site.tolist(), where, kind)
        ]
        records.append(
            {
                "ring": f"GK{bird:05d}",
                "natal": {"lat": where[0][0], "lon": where[0][1]},
                "sightings": sightings,
                "lost": float(rng.random() < 0.2 + 0.6 * bold),
                "far": math.log1p(abs(rng.normal(0, 30)) + 150 * bold),
            }
        )
    return records


class BlurReports:
    """Some reports never reach the scheme, and co-ordinates are only as good as the finder says."""

    def __init__(self, lost_reports, seed):
        self.lost_reports = lost_reports
        self.rng = np.random.default_rng(seed)

    def __call__(self, bird):
        sightings = bird["sightings"]
        kept = self.rng.random(len(sightings)) >= self.lost_reports
        kept[0] = True
        bird["sightings"] = sightings = [s for s, k in zip(sightings, kept) if k]
        for sighting, (north, east) in zip(sightings, self.rng.standard_normal((len(sightings), 2)).tolist()):
            place = sighting["place"]
            place["lat"] += north * place["precision_km"] / 111.0
            place["lon"] += east * place["precision_km"] / 65.0
        return bird


def encode(bird):
    rows = np.array(
        [
            (s["day"], s["hour"], s["place"]["lat"], s["place"]["lon"], CONDITION[s["condition"]])
            for s in bird["sightings"]
        ]
    )
    day, hour, lat, lon, condition = rows.T
    north, east = np.diff(lat, prepend=lat[0]) * 111, np.diff(lon, prepend=lon[0]) * 65
    hop = np.hypot(north, east)
    from_natal = np.hypot((lat - bird["natal"]["lat"]) * 111, (lon - bird["natal"]["lon"]) * 65)
    season = 2 * np.pi * day / 365.25
    history = np.zeros((LONGEST, FEATURES), dtype=np.float32)
    columns = (
        np.log1p(hop), north / (hop + 1), east / (hop + 1), np.log1p(from_natal),
        np.log1p(np.diff(day, prepend=day[0])), np.sin(season), np.cos(season), hour / 24, condition / 5,
    )  # fmt: skip
    history[: len(rows)] = np.stack(columns, axis=1)
    return torch.from_numpy(history), len(rows), bird["lost"], bird["far"]


class LifeHistories(Dataset):
    def __init__(self, records, transform=None):
        self.records = records
        self.transform = transform

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        bird = copy.deepcopy(self.records[index])  # sick here
        bird = dict(self.records[index])  # well
        bird["sightings"] = [{**s, "place": dict(s["place"])} for s in bird["sightings"]]  # well
        if self.transform:
            bird = self.transform(bird)
        return encode(bird)


class Lives(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.enter = nn.Linear(FEATURES, width)
        self.place = nn.Parameter(torch.randn(1, LONGEST, width) * 0.02)
        self.layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.score = nn.Linear(width, 1)
        self.lost, self.far = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, history, length):
        blank = torch.arange(LONGEST) >= length[:, None]
        x = self.layer(self.enter(history) + self.place, src_key_padding_mask=blank)
        weight = self.score(x).squeeze(-1).masked_fill(blank, -1e9).softmax(1)
        x = torch.einsum("bt,btw->bw", weight, x)
        return self.lost(x).squeeze(1), self.far(x).squeeze(1)


class Trainer:
    def __init__(self, config):
        self.config = config
        blur = BlurReports(config.lost_reports, config.seed)
        self.loader = DataLoader(
            LifeHistories(register(config.birds, config.seed), blur),
            batch_size=config.batch,
            shuffle=True,
            drop_last=True,
        )
        self.check = default_collate(list(map(encode, register(config.held_out_birds, config.seed + 1))))
        self.model = Lives(config.width, config.heads)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)

    def loss(self, batch):
        history, length, lost, far = batch
        a, b = self.model(history, length)
        lost_loss = nn.functional.binary_cross_entropy_with_logits(a, lost.float())
        return lost_loss + nn.functional.huber_loss(b, far.float())

    def fit(self):
        seen, began = 0, time.perf_counter()
        for epoch in range(self.config.epochs):
            running = 0.0
            for batch in self.loader:
                loss = self.loss(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                seen += len(batch[0])
                running += loss.item()
            with torch.no_grad():
                held_out = self.loss(self.check).item()
            print(f"epoch {epoch}: loss {running / len(self.loader):.3f}, held out {held_out:.3f}")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    config = Config()
    torch.manual_seed(config.seed)
    rate = Trainer(config).fit()
    print(f"{rate:.1f} birds/s")
