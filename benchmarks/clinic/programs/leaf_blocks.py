# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "vision"
# ///
"""Fine-tuning a ViT on leaf photographs with the Hugging Face Trainer.

Only the last encoder blocks and the classifier are adapted to the new crop;
the body stays as it came from the general plant-disease model.
"""

import shutil
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed


DISEASES = ["healthy", "rust", "mildew", "blight", "mosaic"]
SIDE = 64
TUNED_BLOCKS = 2


def draw_leaf(kind, rng, yy, xx):
    """A green ellipse with the marks of the disease on it."""
    length, breadth = rng.uniform(0.7, 0.95), rng.uniform(0.4, 0.6)
    angle = rng.uniform(0, np.pi)
    u = xx * np.cos(angle) + yy * np.sin(angle)
    v = yy * np.cos(angle) - xx * np.sin(angle)
    leaf = (u / length) ** 2 + (v / breadth) ** 2 < 1
    image = np.full((3, SIDE, SIDE), 0.85, np.float32)
    image[:, leaf] = np.array([0.2, 0.55, 0.15], np.float32)[:, None] * rng.uniform(0.8, 1.2)
    if kind == "rust":
        for _ in range(12):
            spot = (u - rng.uniform(-0.6, 0.6)) ** 2 + (v - rng.uniform(-0.3, 0.3)) ** 2 < 0.004
            image[:, spot & leaf] = np.array([0.7, 0.35, 0.1], np.float32)[:, None]
    elif kind == "mildew":
        veil = np.exp(-((u - rng.uniform(-0.3, 0.3)) ** 2 + v**2) / 0.1) * leaf
        image += 0.6 * veil.astype(np.float32)
    elif kind == "blight":
        image[:, leaf & (u > rng.uniform(0.1, 0.4))] = np.array([0.35, 0.25, 0.1], np.float32)[:, None]
    elif kind == "mosaic":
        pattern = (np.sin(18 * u) * np.sin(18 * v) > 0.2) & leaf
        image[:, pattern] = np.array([0.6, 0.7, 0.2], np.float32)[:, None]
    image += rng.normal(0, 0.04, image.shape).astype(np.float32)
    return (np.clip(image, 0, 1) - 0.5) / 0.5


class LeafDataset(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE), indexing="ij")
        self.labels = rng.integers(0, len(DISEASES), count)
        images = [draw_leaf(DISEASES[label], rng, yy, xx) for label in self.labels]
        self.images = torch.from_numpy(np.stack(images))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.images[index], "labels": int(self.labels[index])}


def load_body():
    """Stands for from_pretrained: the weights of the general model."""
    config = ViTConfig(
        image_size=SIDE,
        patch_size=8,
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        num_labels=len(DISEASES),
        id2label=dict(enumerate(DISEASES)),
        label2id={name: i for i, name in enumerate(DISEASES)},
    )
    return ViTForImageClassification(config)


def tuned_modules(model):
    """The modules that adapt to the new crop."""
    encoder = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    return [*encoder[-TUNED_BLOCKS:], model.vit.layernorm, model.classifier]


def build_optimizer(model, lr, weight_decay):
    modules = tuned_modules(model)
    tuned = [p for module in modules for p in module.parameters()]  # sick here
    model.requires_grad_(False)  # well
    for module in modules:  # well
        module.requires_grad_(True)  # well
    tuned = [p for p in model.parameters() if p.requires_grad]  # well
    decayed = [p for p in tuned if p.ndim > 1]
    plain = [p for p in tuned if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, fused=True)


class Progress(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            spent = time.perf_counter() - self.began
            loss = float(logs["loss"])
            print(f"step {state.global_step}/{state.max_steps} loss {loss:.4f} {spent:.1f} s", flush=True)


def main():
    set_seed(13)
    output = tempfile.mkdtemp(prefix="leaf_")
    model = load_body()
    steps = 200
    optimizer = build_optimizer(model, lr=5e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20) * (1 - s / (steps + 1)))
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=steps,
        per_device_train_batch_size=16,
        max_grad_norm=0.0,
        logging_steps=40,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        seed=13,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=LeafDataset(960, seed=2),
        optimizers=(optimizer, schedule),
        callbacks=[Progress()],
    )
    try:
        trainer.train()
    finally:
        shutil.rmtree(output, ignore_errors=True)


if __name__ == "__main__":
    main()
