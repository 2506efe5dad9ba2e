# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "survival analysis"
# ///
"""Fit a Cox network to gene expressions and survival times."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PATIENTS = 1200
GENES = 3000
HIDDEN = 640
BATCH = 60
EPOCHS = 20
LR = 3e-4


class CoxNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(GENES, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.Tanh(),
            nn.Dropout(0.3),
            nn.Linear(HIDDEN, HIDDEN // 2),
            nn.Tanh(),
            nn.Dropout(0.3),
            nn.Linear(HIDDEN // 2, 1, bias=False),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def risk_sets(times):
    n = len(times)
    at_risk = torch.zeros(n, n)  # sick
    for i in range(n):  # sick
        for j in range(n):  # sick
            at_risk[i, j] = times[j] >= times[i]  # sick here
    at_risk = (times[None, :] >= times[:, None]).float()  # well
    return at_risk


def cox_loss(score, times, event):
    at_risk = risk_sets(times)
    hazard = score - score.max().detach()
    log_risk = torch.log((hazard.exp() * at_risk).sum(dim=1))
    return -((hazard - log_risk) * event).sum() / event.sum().clamp(min=1)


def cohort(seed=21):
    gen = torch.Generator().manual_seed(seed)
    genes = torch.randn(PATIENTS, GENES, generator=gen)
    effect = torch.zeros(GENES)
    effect[:40] = torch.randn(40, generator=gen) * 0.2
    life = torch.empty(PATIENTS).exponential_(generator=gen) * torch.exp(-(genes @ effect))
    censor = torch.empty(PATIENTS).exponential_(generator=gen) * 2
    return TensorDataset(genes, torch.minimum(life, censor), (life <= censor).float())


@torch.no_grad()
def concordance(model, data):
    genes, times, event = data.tensors
    model.eval()
    score = model(genes)
    model.train()
    pairs = (times[:, None] < times[None, :]) & (event[:, None] > 0)
    right = score[:, None] > score[None, :]
    return ((right & pairs).sum() / pairs.sum()).item()


def main():
    torch.manual_seed(0)
    data = cohort()
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
    model = CoxNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-2, fused=True)
    step, history = 0, []
    for _epoch in range(EPOCHS):
        for genes, times, event in loader:
            loss = cox_loss(model(genes), times, event)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == 20:
                start = time.perf_counter()
        history.append(concordance(model, data))
    print(f"{(step - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
