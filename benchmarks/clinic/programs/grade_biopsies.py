# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "medicine, fine-tuning a CNN encoder with an attention head on bags of biopsy patches"
# ///
"""Fine-tune a pretrained patch encoder to grade prostate biopsies (Gleason grade groups 0 to 5).

Each biopsy is a bag of patches cut from the slide. The encoder describes every patch, a small attention head reads
the bag. In this first stage only the last block of the encoder and the head learn; the stem and the early blocks keep
what they learned from the unlabelled slides. Slides are simulated: density and size of the "glands" follow the grade.
"""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


GRADES = 6
BIOPSIES = 160
PATCHES = 6
SIDE = 64
BATCH = 4
STEPS = 240
BASE_LR = 1e-3

# share of the base learning rate that each part of the network gets
LR_SCALE = {"stem": 0.0, "block1": 0.0, "block2": 0.0, "block3": 0.1, "head": 1.0}  # here


class Residual(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, channels_out)
        self.skip = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class BagHead(nn.Module):
    """Self-attention among the patches of a biopsy, then a pooled prediction of the grade."""

    def __init__(self, width):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.mix = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.weight = nn.Linear(width, 1)
        self.grade = nn.Linear(width, GRADES)

    def forward(self, patches):
        patches = self.mix(patches)
        attention = self.weight(patches).softmax(dim=1)
        return self.grade((attention * patches).sum(dim=1))


class BiopsyGrader(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2, bias=False), nn.GroupNorm(8, 32), nn.ReLU())
        self.block1 = Residual(32, 48, 1)
        self.block2 = Residual(48, 96, 2)
        self.block3 = Residual(96, 192, 2)
        self.head = BagHead(192)

    def forward(self, bags):
        count, patches = bags.shape[:2]
        x = self.stem(bags.flatten(0, 1))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(x.mean(dim=(2, 3)).view(count, patches, -1))


def simulate_slides(generator):
    """Smooth noise at two scales; the higher the grade, the finer and the denser the glands."""
    grades = torch.randint(GRADES, (BIOPSIES,), generator=generator)
    coarse = torch.randn(BIOPSIES, PATCHES * 3, 8, 8, generator=generator)
    fine = torch.randn(BIOPSIES, PATCHES * 3, 32, 32, generator=generator)
    share = (grades.float() / (GRADES - 1)).view(-1, 1, 1, 1)
    texture = (1 - share) * F.interpolate(coarse, SIDE, mode="bilinear") + share * F.interpolate(
        fine, SIDE, mode="bilinear"
    )
    stain = torch.randn(BIOPSIES, PATCHES * 3, 1, 1, generator=generator) * 0.2
    return (texture + stain).view(BIOPSIES, PATCHES, 3, SIDE, SIDE), grades


def augment(bags):
    """Flips and quarter turns of the whole bag, and a new stain intensity for each patch."""
    if torch.rand(()) < 0.5:
        bags = bags.flip(-1)
    bags = torch.rot90(bags, int(torch.randint(4, ())), dims=(-2, -1))
    gain = 1 + 0.1 * torch.randn(*bags.shape[:3], 1, 1)
    return bags * gain


torch.manual_seed(3)
slides, grades = simulate_slides(torch.Generator().manual_seed(5))
model = BiopsyGrader()

groups = []
for part, scale in LR_SCALE.items():
    parameters = list(getattr(model, part).parameters())
    groups.append({"params": parameters, "lr": BASE_LR * scale})  # sick here
    if scale > 0:  # well
        groups.append({"params": parameters, "lr": BASE_LR * scale})  # well
    else:  # well
        for parameter in parameters:  # well
            parameter.requires_grad_(False)  # well
optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / STEPS)))

started = time.time()
running = torch.zeros(())
for step in range(1, STEPS + 1):
    chosen = torch.randint(BIOPSIES, (BATCH,))
    logits = model(augment(slides[chosen]))
    loss = F.cross_entropy(logits, grades[chosen], label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    running += loss.detach()
    if step % 40 == 0:
        print(f"step {step:4d}  loss {running.item() / 40:.4f}  {time.time() - started:.1f} s", flush=True)
        running.zero_()

model.eval()
with torch.no_grad():
    predicted = torch.cat([model(part).argmax(1) for part in slides.split(16)])
print(
    f"agreement {(predicted == grades).float().mean():.3f}, within one grade {((predicted - grades).abs() <= 1).float().mean():.3f}"
)
