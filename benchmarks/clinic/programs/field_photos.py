# /// clinic
# expect = ["PD03.crowded-training", "PD03.workers-restarted"]
# stratum = "twins"
# domain = "computer vision"
# ///
"""Train a small residual network to tell leaf diseases apart, from phone photographs stored as JPEG files."""

import io
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


CLASSES = ["healthy", "rust", "mildew", "blight", "mosaic", "scab"]
WORKERS_STAY = False  # sick here
WORKERS_STAY = True  # well
CONFIG = {
    "photos": 320,
    "photo_size": (1024, 768),
    "input_size": 100,
    "crop": 92,
    "batch_size": 20,
    "epochs": 14,
    "lr": 2e-3,
    "loader": {
        "num_workers": 1,
        "prefetch_factor": 4,
        "drop_last": True,
        "persistent_workers": WORKERS_STAY,
    },
}


def photograph_field(root, cfg):
    """Write the photographs of the season: a leaf-coloured background with spots whose pattern depends on the class."""
    rng = np.random.default_rng(3)
    for i in range(cfg["photos"]):
        label = i % len(CLASSES)
        low = rng.normal(0, 18, (30, 40, 3)) + np.array([60, 120, 50])
        for _ in range(4 + 3 * label):
            y, x = rng.integers(0, 28), rng.integers(0, 38)
            low[y : y + 2, x : x + 2] += np.array([20 * label, -12 * label, 70 - 20 * label])
        photo = Image.fromarray(low.clip(0, 255).astype(np.uint8)).resize(cfg["photo_size"], Image.BILINEAR)
        folder = root / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=88)
        (folder / f"{i:05d}.jpg").write_bytes(buffer.getvalue())


class RandomCropFlip:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        top, left = torch.randint(0, image.shape[1] - self.size + 1, (2,)).tolist()
        image = image[:, top : top + self.size, left : left + self.size]
        return image.flip(2) if torch.rand(()) < 0.5 else image


class LeafPhotos(Dataset):
    """Photographs in folders named after their class; a decoded photograph is kept at the size that the network needs."""

    def __init__(self, root, size, augment=None):
        self.size = size
        self.augment = augment
        self.files = sorted(root.glob("*/*.jpg"))
        self.labels = [CLASSES.index(f.parent.name) for f in self.files]
        self.decoded = {}  # here

    def __len__(self):
        return len(self.files)

    def load(self, index):
        if index not in self.decoded:  # here
            with Image.open(self.files[index]) as photo:
                small = photo.convert("RGB").resize((self.size, self.size), Image.BILINEAR)
            self.decoded[index] = torch.from_numpy(np.array(small)).permute(2, 0, 1).contiguous()  # here
        return self.decoded[index]

    def __getitem__(self, index):
        image = self.load(index)
        if self.augment is not None:
            image = self.augment(image)
        return image, self.labels[index]


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class LeafNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.body = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, classes)
        self.register_buffer("mean", torch.tensor([0.3, 0.45, 0.25]).view(1, 3, 1, 1))

    def forward(self, images):
        x = (images.float() / 255 - self.mean) / 0.2
        return self.head(self.body(F.relu(self.stem(x))).mean((2, 3)))


class Trainer:
    def __init__(self, model, loader, cfg):
        self.model, self.loader, self.cfg = model, loader, cfg
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg["epochs"] * len(loader))

    def train_epoch(self):
        self.model.train()
        total, hits, seen = 0.0, 0, 0
        for images, labels in self.loader:
            logits = self.model(images)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.item() * len(labels)
            hits += (logits.argmax(1) == labels).sum().item()
            seen += len(labels)
        return total / seen, hits / seen

    def fit(self):
        for epoch in range(self.cfg["epochs"]):
            started = time.time()
            loss, accuracy = self.train_epoch()
            print(
                f"epoch {epoch:2d} loss {loss:.4f} accuracy {accuracy:.3f} ({time.time() - started:.1f} s)", flush=True
            )


def main():
    torch.manual_seed(0)
    root = Path(tempfile.mkdtemp(prefix="leaves_"))
    try:
        photograph_field(root, CONFIG)
        dataset = LeafPhotos(root, CONFIG["input_size"], RandomCropFlip(CONFIG["crop"]))
        loader = DataLoader(dataset, CONFIG["batch_size"], shuffle=True, **CONFIG["loader"])
        Trainer(LeafNet(len(CLASSES)), loader, CONFIG).fit()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
