# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "microscopy of pollen"
# ///
"""Segment pollen grains on microscope slides into species, for counts in an allergy forecast.

A small encoder with a feature pyramid: three stages, merged at a quarter of the slide's resolution, and one mask per species.
Slides are drawn: grains are textured discs on a noisy background.
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F


SPECIES = ("background", "birch", "alder", "hazel", "grass", "mugwort")
SIZE = 128


def draw_slides(count, seed):
    """Slides (count, 3, SIZE, SIZE) and, for each pixel, the number of its species."""
    generator = torch.Generator().manual_seed(seed)
    slides = 0.8 + 0.05 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    masks = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    rows = torch.arange(SIZE).view(-1, 1).float()
    columns = torch.arange(SIZE).view(1, -1).float()
    tints = torch.rand(len(SPECIES), 3, generator=generator) * 0.5 + 0.2
    for slide, mask in zip(slides, masks):
        for _ in range(int(torch.randint(3, 9, (), generator=generator))):
            species = int(torch.randint(1, len(SPECIES), (), generator=generator))
            middle = torch.rand(2, generator=generator) * SIZE
            radius = 6 + 2 * species + 2 * torch.rand((), generator=generator)
            distance = ((rows - middle[0]) ** 2 + (columns - middle[1]) ** 2).sqrt()
            inside = distance < radius
            texture = 0.1 * torch.sin(distance * (0.5 + 0.3 * species))
            slide[:, inside] = tints[species].view(3, 1) + texture[inside]
            mask[inside] = species
    return slides, masks


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.ReLU(inplace=True),
    )


class GrainNet(nn.Module):
    def __init__(self, species, width=48):
        super().__init__()
        self.stem = nn.Sequential(block(3, 16, 2), block(16, 32, 2))
        self.stage1 = nn.Sequential(block(32, 48, 1), block(48, 48, 1))
        self.stage2 = nn.Sequential(block(48, 64, 2), block(64, 64, 1))
        self.stage3 = nn.Sequential(block(64, 96, 2), block(96, 96, 1))
        self.lateral = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in (48, 64, 96))
        self.merge = nn.Sequential(block(width, width, 1), block(width, width, 1))
        self.classify = nn.Conv2d(width, species, 1)

    def pyramid(self, slides):
        fine = self.stage1(self.stem(slides))
        middle = self.stage2(fine)
        coarse = self.stage3(middle)
        merged = self.lateral[2](coarse)
        for lateral, level in ((self.lateral[1], middle), (self.lateral[0], fine)):
            merged = lateral(level) + F.interpolate(merged, size=level.shape[-2:], mode="nearest")
        return self.merge(merged)

    def forward(self, slides):
        features = self.pyramid(slides)
        features = F.interpolate(features, size=slides.shape[-2:], mode="bilinear", align_corners=False)  # sick here
        return self.classify(features)  # sick here
        scores = self.classify(features)  # well
        return F.interpolate(scores, size=slides.shape[-2:], mode="bilinear", align_corners=False)  # well


class Trainer:
    def __init__(self, model, slides, masks, batch_size=12, rate=2e-3, report_every=20):
        self.model = model
        self.slides, self.masks = slides, masks
        self.batch_size = batch_size
        self.report_every = report_every
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        self.weights = torch.tensor([0.3] + [1.0] * (len(SPECIES) - 1))
        self.step = 0

    def batches(self):
        order = torch.randperm(len(self.slides))
        for chosen in order.split(self.batch_size):
            if len(chosen) == self.batch_size:
                slides, masks = self.slides[chosen], self.masks[chosen]
                if torch.rand(()) < 0.5:
                    slides, masks = slides.flip(-1), masks.flip(-1)
                yield slides, masks

    def train_step(self, slides, masks):
        scores = self.model(slides)
        loss = F.cross_entropy(scores, masks, weight=self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def fit(self, epochs):
        start = time.time()
        losses = []
        for epoch in range(epochs):
            for slides, masks in self.batches():
                losses.append(self.train_step(slides, masks))
                if self.step % self.report_every == 0:
                    speed = self.step * self.batch_size / (time.time() - start)
                    print(
                        f"epoch {epoch}  step {self.step}  loss {torch.stack(losses).mean():.4f}  {speed:.1f} slides/s"
                    )
                    losses.clear()
        print(f"{self.step} steps, {time.time() - start:.1f} s")

    @torch.no_grad()
    def overlap(self, slides, masks):
        found = self.model(slides).argmax(1)
        for number, name in enumerate(SPECIES):
            both = ((found == number) & (masks == number)).sum()
            either = ((found == number) | (masks == number)).sum().clamp(min=1)
            print(f"  {name:10s} IoU {both / either:.3f}")


if __name__ == "__main__":
    torch.manual_seed(5)
    slides, masks = draw_slides(264, seed=9)
    trainer = Trainer(GrainNet(len(SPECIES)), slides[24:], masks[24:])
    trainer.fit(epochs=9)
    trainer.overlap(slides[:24], masks[:24])
