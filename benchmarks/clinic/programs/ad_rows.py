# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "recommender"
# smoke = true
# sizes = {WIDTH = [24, 40]}
# severities = {ADS = [16000, 60000, 240000]}
# ///
"""Will an advertisement be clicked on? Every advertisement has a row of a table."""

import time

import torch
from torch import nn

WIDTH = 32
ADS = 60000
BATCH = 192
SECONDS = 5.0


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.ad = nn.Embedding(ADS, WIDTH)  # sick
        self.ad = nn.Embedding(ADS, WIDTH, sparse=True)  # well
        self.tower = nn.Sequential(
            nn.Linear(WIDTH + 40, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, ads, person):
        return self.tower(torch.cat([self.ad(ads), person], dim=1)).squeeze(1)


class Stream:
    """Shown advertisements; a few are shown often."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self):
        while True:
            ads = (torch.rand(BATCH, generator=self.generator) ** 2 * ADS).long()
            person = torch.randn(BATCH, 40, generator=self.generator)
            yield ads, person, (person[:, 0] + ads.float() / ADS > 0.5).float()


def main():
    torch.manual_seed(3)
    model = Clicks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps, began = 0, None
    for ads, person, clicked in Stream():
        loss = nn.functional.binary_cross_entropy_with_logits(model(ads, person), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 20:
            began = time.perf_counter()
        elif began is not None and time.perf_counter() - began > SECONDS:
            break
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
