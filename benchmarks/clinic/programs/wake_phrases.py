# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "speech commands"
# ///
"""Voice command recogniser: log-mel features, convolutional subsampling, a small Transformer."""

import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    n_mels: int = 40
    max_frames: int = 320
    n_commands: int = 24
    width: int = 96
    heads: int = 4
    depth: int = 3
    batch_size: int = 32
    epochs: int = 5
    train_items: int = 3840
    valid_items: int = 384
    lr: float = 1e-3
    seed: int = 7


class CommandFeatures(Dataset):
    """Log-mel features of spoken phrases, kept in memory."""

    def __init__(self, cfg, items, seed):
        gen = torch.Generator().manual_seed(seed)
        templates = torch.randn(cfg.n_commands, cfg.max_frames, cfg.n_mels, generator=torch.Generator().manual_seed(1))
        templates = F.avg_pool1d(templates.transpose(1, 2), 9, 1, 4).transpose(1, 2) * 2
        self.labels = torch.randint(cfg.n_commands, (items,), generator=gen)
        scale = torch.randn(items, generator=gen).mul(0.4).add(math.log(125)).exp()
        self.lengths = scale.round().long().clamp(48, cfg.max_frames).tolist()
        self.features = []
        for label, length in zip(self.labels.tolist(), self.lengths):
            noise = torch.randn(length, cfg.n_mels, generator=gen)
            self.features.append(templates[label, :length] + noise)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.labels[index]


class BucketSampler(Sampler):
    """Batches of phrases of similar duration, in random order."""

    def __init__(self, lengths, batch_size, seed):
        self.lengths, self.batch_size = lengths, batch_size
        self.rng = random.Random(seed)

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + self.rng.uniform(-6, 6))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)


class FeatureCollator:
    def __init__(self, pad_to=None):
        self.pad_to = pad_to

    def __call__(self, items):
        lengths = torch.tensor([len(x) for x, _ in items])
        frames = self.pad_to or int(lengths.max())
        batch = torch.zeros(len(items), frames, items[0][0].shape[1])
        for row, (x, _) in zip(batch, items):
            row[: len(x)] = x
        return batch, lengths, torch.stack([y for _, y in items])


def valid_mask(lengths, frames):
    return torch.arange(frames)[None] < lengths[:, None]


class Subsampling(nn.Module):
    """Two strided convolutions, a quarter of the frame rate."""

    def __init__(self, n_mels, width):
        super().__init__()
        self.first = nn.Conv1d(n_mels, width, 5, stride=2, padding=2)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)

    def forward(self, x, lengths):
        x = F.relu(self.first(x.transpose(1, 2)))
        lengths = (lengths + 1) // 2
        x = x * valid_mask(lengths, x.shape[2])[:, None]
        x = F.relu(self.second(x))
        lengths = (lengths + 1) // 2
        return x.transpose(1, 2), lengths


class Recogniser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.subsample = Subsampling(cfg.n_mels, cfg.width)
        self.position = nn.Parameter(torch.randn(cfg.max_frames // 4 + 1, cfg.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg.width, cfg.heads, cfg.width * 4, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.n_commands)

    def forward(self, features, lengths):
        x, lengths = self.subsample(features, lengths)
        keep = valid_mask(lengths, x.shape[1])
        x = self.encoder(x + self.position[: x.shape[1]], src_key_padding_mask=~keep)
        x = self.norm(x) * keep[..., None]
        return self.head(x.sum(1) / lengths[:, None])


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for features, lengths, labels in loader:
        right += (model(features, lengths).argmax(1) == labels).sum().item()
        total += len(labels)
    model.train()
    return right / total


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train_set = CommandFeatures(cfg, cfg.train_items, seed=cfg.seed)
    valid_set = CommandFeatures(cfg, cfg.valid_items, seed=cfg.seed + 1)
    collate = FeatureCollator(pad_to=cfg.max_frames)  # sick here
    collate = FeatureCollator()  # well
    train_loader = DataLoader(
        train_set, batch_sampler=BucketSampler(train_set.lengths, cfg.batch_size, cfg.seed), collate_fn=collate
    )
    valid_loader = DataLoader(
        valid_set, batch_sampler=BucketSampler(valid_set.lengths, 64, cfg.seed), collate_fn=collate
    )

    model = Recogniser(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(train_loader))

    step, start = 0, None
    for epoch in range(cfg.epochs):
        running = 0.0
        for features, lengths, labels in train_loader:
            loss = F.cross_entropy(model(features, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
            step += 1
            if step == 5:
                start = time.perf_counter()
        print(
            f"epoch {epoch + 1}: loss {running / len(train_loader):.3f}, valid accuracy {accuracy(model, valid_loader):.3f}"
        )
    torch.save(model.state_dict(), "recogniser.pt")
    print(f"{(step - 5) / (time.perf_counter() - start):.3f} steps/s")


if __name__ == "__main__":
    main()
