# /// clinic
# expect = ["PD13.too-many-threads"]
# stratum = "twins"
# domain = "sheep-fleece micron grading"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
# Grade sheep fleeces from near-infrared scans of the staple: micron class, diameter and clean yield.
# Data-parallel on the workstation in the wool store:
#   torchrun --nproc-per-node 2 train.py
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BANDS = 600  # 1100 to 2500 nm
GRADES = [15.5, 17.5, 18.5, 19.5, 21.0, 23.0, 26.0]  # upper bounds in micron; above the last one: crossbred
EPOCHS = 4
PER_RANK = 256
TRAIN_SCANS = 24_064
TEST_SCANS = 2_048
# centre (nm), width (nm) of the absorptions of keratin, water, wax, suint and vegetable matter
ABSORPTIONS = {
    "keratin": [(1510, 40), (2055, 45), (2180, 50)],
    "water": [(1450, 45), (1935, 50)],
    "wax": [(1730, 25), (2310, 30), (2350, 20)],
    "suint": [(1590, 60), (2260, 40)],
    "burr": [(2100, 60), (2270, 30)],
}


def scan_fleeces(n, seed):
    """Absorbance spectra of n fleeces with their diameter (micron) and clean yield (share)."""
    rng = np.random.default_rng(seed)
    nm = np.linspace(1100, 2500, BANDS)
    curves = np.stack(
        [sum(np.exp(-(((nm - c) / w) ** 2)) for c, w in parts) for parts in ABSORPTIONS.values()]
        + [np.ones(BANDS), (nm - 1800) / 700, ((nm - 1800) / 700) ** 2]
    )
    diameter = rng.uniform(13.5, 32.0, size=n)
    wax = rng.gamma(8.0, 0.02, size=n) * (22 / diameter) ** 0.5
    suint = rng.gamma(4.0, 0.02, size=n)
    burr = rng.gamma(1.5, 0.02, size=n)
    water = rng.uniform(0.08, 0.18, size=n)
    keratin = 1 - wax - suint - burr - water
    scatter = 0.9 / np.sqrt(diameter)
    amounts = np.stack(
        [keratin, 2 * water, wax, suint, burr, scatter + 0.02 * rng.normal(size=n), -0.4 * scatter, 0.1 * scatter**2], 1
    )
    gain = rng.normal(1.0, 0.05, size=(n, 1))
    spectra = (gain * amounts).astype(np.float32) @ curves.astype(np.float32)
    spectra += 0.004 * rng.standard_normal(spectra.shape, dtype=np.float32)
    return spectra, diameter.astype(np.float32), keratin.astype(np.float32)


class Fleeces(Dataset):
    def __init__(self, n, seed):
        spectra, diameter, clean = scan_fleeces(n, seed)
        # standard normal variate correction of each scan
        spectra = (spectra - spectra.mean(1, keepdims=True)) / spectra.std(1, keepdims=True)
        self.spectra = torch.from_numpy(spectra)
        self.diameter, self.clean = torch.from_numpy(diameter), torch.from_numpy(clean)
        self.grade = torch.bucketize(self.diameter, torch.tensor(GRADES))

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, i):
        return self.spectra[i], self.grade[i], self.diameter[i], self.clean[i]


class FleeceGrader(nn.Module):
    """Ordinal grading: one logit for each boundary between classes; diameter and yield are regressed as well."""

    def __init__(self, hidden=896, drop=0.1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(BANDS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(drop),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.boundary = nn.Linear(hidden, 1, bias=False)
        self.bias = nn.Parameter(torch.linspace(2, -2, len(GRADES)))
        self.amounts = nn.Linear(hidden, 2)

    def forward(self, spectra):
        z = self.body(spectra)
        micron, clean = self.amounts(z).unbind(1)
        return self.boundary(z) + self.bias, 20 + 5 * micron, torch.sigmoid(clean)


def criterion(outputs, grade, diameter, clean):
    logits, micron, predicted_yield = outputs
    passed = (grade[:, None] > torch.arange(len(GRADES))).float()
    ordinal = F.binary_cross_entropy_with_logits(logits, passed)
    return ordinal + 0.05 * F.smooth_l1_loss(micron, diameter) + F.mse_loss(predicted_yield, clean)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    sums = torch.zeros(4)
    for spectra, grade, diameter, clean in loader:
        logits, micron, predicted_yield = model(spectra)
        sums[0] += ((logits > 0).sum(1) == grade).sum()
        sums[1] += (micron - diameter).abs().sum()
        sums[2] += (predicted_yield - clean).abs().sum()
        sums[3] += len(grade)
    dist.all_reduce(sums)
    model.train()
    return (sums[:3] / sums[3]).tolist()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(os.cpu_count())  # sick here
    torch.set_num_threads(max(1, os.cpu_count() // world))  # well
    torch.manual_seed(5)

    train_set = Fleeces(TRAIN_SCANS, seed=1)
    test_set = Fleeces(TEST_SCANS, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True, seed=5, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=PER_RANK, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=PER_RANK, sampler=DistributedSampler(test_set, shuffle=False))

    net = FleeceGrader()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(train_loader))

    dist.barrier()
    start = time.time()
    scans_seen = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, (spectra, grade, diameter, clean) in enumerate(train_loader):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(spectra), grade, diameter, clean)
            loss.backward()
            optimizer.step()
            schedule.step()
            scans_seen += len(spectra) * world
            if rank == 0 and step % 20 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.4f}")
        right, micron_off, yield_off = evaluate(net, test_loader)
        if rank == 0:
            print(f"epoch {epoch}: right {100 * right:.1f} %, off by {micron_off:.2f} micron, yield {yield_off:.3f}")
            torch.save({"model": net.state_dict(), "epoch": epoch}, "fleece.pt")
    dist.barrier()
    rate = scans_seen / (time.time() - start)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} scans/s")


if __name__ == "__main__":
    main()
