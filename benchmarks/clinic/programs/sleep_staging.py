# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "sleep EEG"
# sizes = {NIGHT = [1800, 2300], CH = [28, 36]}
# ///
import argparse
import logging
import time

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

NIGHT = 2048  # 15-second windows
CH = 32
RATE = 100
STAGES = 5

log = logging.getLogger("staging")


def windows(n, gen):
    t = torch.arange(15 * RATE) / RATE
    y = torch.randint(0, STAGES, (n,), generator=gen)
    f = torch.tensor([1.0, 4.0, 7.0, 11.0, 18.0])[y] + torch.rand(n, generator=gen)
    phase = 6.28 * torch.rand(n, 1, generator=gen)
    x = torch.sin(6.283 * f[:, None] * t + phase) + 1.5 * torch.randn(n, len(t), generator=gen)
    return TensorDataset(x[:, None], y)


def block(i, o, k, s):
    return nn.Sequential(nn.Conv1d(i, o, k, s, k // 2, bias=False), nn.BatchNorm1d(o), nn.ReLU())


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            block(1, CH, 25, 5),
            block(CH, CH, 7, 1),
            block(CH, 2 * CH, 7, 2),
            block(2 * CH, 2 * CH, 5, 2),
        )
        self.out = nn.Linear(2 * CH, STAGES)

    def forward(self, x):
        return self.out(self.body(x).mean(-1))


@torch.inference_mode()
def accuracy(model, loader):
    model.eval()
    hit = n = 0
    for x, y in loader:
        hit += (model(x).argmax(1) == y).sum().item()
        n += len(y)
    return hit / n


def run(args):
    gen = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    train, test = windows(NIGHT, gen), windows(256, gen)
    loader = DataLoader(train, args.batch, shuffle=True, drop_last=True, generator=gen)
    plain = DataLoader(train, args.batch, generator=torch.Generator())
    held_out = DataLoader(test, 128)

    model = Stager()
    swa = AveragedModel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    swa_lr = SWALR(opt, swa_lr=0.02, anneal_epochs=2)
    ce = nn.CrossEntropyLoss()

    seen, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        if epoch == 1:
            seen, start = 0, time.perf_counter()
        model.train()
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            loss = ce(model(x), y)
            loss.backward()
            opt.step()
            seen += len(y)
        if epoch >= args.swa_from:
            swa.update_parameters(model)
            swa_lr.step()
            update_bn(plain, swa)  # sick here
        log.info("epoch %d loss %.3f acc %.3f", epoch, loss.item(), accuracy(model, held_out))
    update_bn(plain, swa)  # well
    took = time.perf_counter() - start
    log.info("averaged acc %.3f", accuracy(swa, held_out))
    print(f"trained at {seen / took:.1f} windows/s")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--swa-from", type=int, default=1)
    ap.add_argument("--seed", type=int, default=3)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(ap.parse_args())
