# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "vessel type from AIS tracks, DDP on two ranks"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Recognise the type of a vessel from its AIS track, on two ranks with DistributedDataParallel."""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


TYPES = ("cargo", "tanker", "ferry", "trawler", "pilot")
BATCH = 16
EPOCHS = 6
TRACKS = 1280


def make_tracks(count, seed=7):
    """Tracks of very different lengths: (points, 4) with position, speed and turn."""
    random = torch.Generator().manual_seed(seed)
    types = torch.randint(len(TYPES), (count,), generator=random)
    lengths = (torch.randn(count, generator=random) * 0.6 + 4.9).exp().clamp(30, 480).long()
    swing = torch.tensor([0.02, 0.03, 0.08, 0.25, 0.15])
    speed = torch.tensor([1.2, 1.0, 1.6, 0.5, 0.9])
    tracks = []
    for kind, length in zip(types.tolist(), lengths.tolist()):
        turn = swing[kind] * torch.randn(length, generator=random)
        heading = turn.cumsum(0)
        pace = speed[kind] * (1 + 0.3 * torch.randn(length, generator=random))
        east = (pace * heading.cos()).cumsum(0) / 50
        north = (pace * heading.sin()).cumsum(0) / 50
        tracks.append(torch.stack([east, north, pace, turn], dim=1))
    return tracks, types


def make_batches(tracks, types):
    """Batches of tracks of about equal length, padded, with a mask of the padding."""
    order = sorted(range(len(tracks)), key=lambda i: len(tracks[i]))
    batches = []
    for first in range(0, len(order) - BATCH + 1, BATCH):
        members = order[first : first + BATCH]
        padded = nn.utils.rnn.pad_sequence([tracks[i] for i in members], batch_first=True)
        lengths = torch.tensor([len(tracks[i]) for i in members])
        padding = torch.arange(padded.shape[1])[None] >= lengths[:, None]
        batches.append((padded, padding, types[members]))
    return batches


def share(batches, rank, world):
    """The batches of this rank, as many for each rank."""
    each = len(batches) // world
    return batches[rank * each : (rank + 1) * each]  # sick here
    return batches[rank::world][:each]  # well


class TrackEncoder(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.embed = nn.Conv1d(4, width, 5, padding=2)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(TYPES)))

    def forward(self, track, padding):
        hidden = F.gelu(self.embed(track.transpose(1, 2))).transpose(1, 2)
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        present = (~padding).unsqueeze(-1)
        return self.head((hidden * present).sum(1) / present.sum(1))


def train(rank, world):
    torch.manual_seed(0)
    batches = make_batches(*make_tracks(TRACKS))
    mine = share(batches, rank, world)  # here

    model = DistributedDataParallel(TrackEncoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    steps = EPOCHS * len(mine)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)

    start = time.monotonic()
    step = 0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(mine), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(2)
        for place in order.tolist():
            track, padding, kind = mine[place]
            logits = model(track, padding)
            loss = F.cross_entropy(logits, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            total += torch.stack([loss.detach(), (logits.detach().argmax(1) == kind).float().mean()])
            if step % 20 == 0 and rank == 0:
                print(f"step {step:4d} of {steps}  {time.monotonic() - start:5.1f} s", flush=True)
        dist.all_reduce(total)
        if rank == 0:
            loss, right = (total / (world * len(mine))).tolist()
            print(f"epoch {epoch + 1}  loss {loss:.4f}  right {right:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
