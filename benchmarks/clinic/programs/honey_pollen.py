# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "melissopalynology (pollen in honey)"
# ///
# %% [markdown]
# # Where does the honey come from?
# A beekeepers' laboratory measures every pollen grain it finds on a slide of honey. One slide
# is a bag of 20 to 90 grains; the label is the region of the apiary. Attention pooling
# weighs the grains, because most of them are clover or rape and say little.

# %%
import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

SLIDES = 4096
TRAITS = 20
TAXA = 30
REGIONS = 8
BATCH = 64
EPOCHS = 24
WIDTH = 128

accelerator = Accelerator(cpu=True)
set_seed(1914)

# %% [markdown]
# ## Slides
# A taxon has a typical look (size, exine, apertures ...), a region has a flora.


# %%
class Slides(Dataset):
    def __init__(self, count, seed):
        world = np.random.default_rng(5)
        look = world.normal(size=(TAXA, TRAITS)) * 1.2
        flora = world.dirichlet(np.full(TAXA - 4, 0.25), size=REGIONS)
        rng = np.random.default_rng(seed)
        self.grains, self.region = [], rng.integers(REGIONS, size=count)
        for region in self.region:
            n = int(rng.integers(20, 91))
            common = rng.integers(0, 4, size=n)
            local = 4 + rng.choice(TAXA - 4, size=n, p=flora[region])
            taxon = np.where(rng.random(n) < 0.85, common, local)
            grains = look[taxon] + rng.normal(size=(n, TRAITS)) * 0.8
            self.grains.append(torch.from_numpy(grains.astype(np.float32)))

    def __len__(self):
        return len(self.grains)

    def __getitem__(self, i):
        return self.grains[i], int(self.region[i])


def stack_slides(items):
    """Grains of all slides in one long table, with the slide that each belongs to."""
    sizes = torch.tensor([len(grains) for grains, _ in items])
    return {
        "grains": torch.cat([grains for grains, _ in items]),
        "slide": torch.repeat_interleave(torch.arange(len(items)), sizes),
        "region": torch.tensor([region for _, region in items]),
    }


# %% [markdown]
# ## Model


# %%
def pool(features, scores, slide, count):
    """Mean of the features of each slide, weighed by a softmax of the scores within it."""
    pooled = []  # sick
    for s in range(count):  # sick here
        weight = torch.softmax(scores[slide == s], dim=0)  # sick here
        pooled.append((weight.unsqueeze(1) * features[slide == s]).sum(0))  # sick here
    return torch.stack(pooled)  # sick
    others = slide.unsqueeze(0) != torch.arange(count).unsqueeze(1)  # well
    weight = scores.unsqueeze(0).masked_fill(others, float("-inf")).softmax(dim=1)  # well
    return weight @ features  # well


class SlideNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.grain = nn.Sequential(
            nn.Linear(TRAITS, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.GELU(),
            nn.Linear(2 * WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
        )
        self.score = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, REGIONS))

    def forward(self, grains, slide, count):
        features = self.grain(grains)
        scores = self.score(features).squeeze(1)
        return self.head(pool(features, scores, slide, count))


# %% [markdown]
# ## Training

# %%
train_loader = DataLoader(Slides(SLIDES, 1), BATCH, shuffle=True, drop_last=True, collate_fn=stack_slides)
test_loader = DataLoader(Slides(512, 2), BATCH, collate_fn=stack_slides)
model = SlideNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train_loader))
model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, test_loader, scheduler
)

began = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    losses = []
    for batch in train_loader:
        logits = model(batch["grains"], batch["slide"], len(batch["region"]))
        loss = F.cross_entropy(logits, batch["region"])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    if epoch % 4 == 3:
        mean = torch.stack(losses).mean().item()
        accelerator.print(f"epoch {epoch + 1:3d}  loss {mean:.3f}  {time.perf_counter() - began:5.1f} s")
seconds = time.perf_counter() - began

# %%
model.eval()
hits = total = 0
with torch.no_grad():
    for batch in test_loader:
        guess = model(batch["grains"], batch["slide"], len(batch["region"])).argmax(1)
        hits += (guess == batch["region"]).sum().item()
        total += len(guess)
accelerator.print(f"test accuracy {hits / total:.3f}")
accelerator.print(f"total training seconds: {seconds:.1f}")
