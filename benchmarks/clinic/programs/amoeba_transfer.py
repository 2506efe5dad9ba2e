# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "peat bog testate amoebae"
# ///
"""Transfer function from testate amoebae to the water table of a peat bog.

Each core is a sequence of slices with the percentages of the taxa; the model reconstructs the depth of the water
table of every slice and, as a second task, whether the slice was burnt.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

SLICES = 24
EVAL_EVERY = 10  # sick here
EVAL_EVERY = 200  # well
TAXA = [
    "Archerella flavum",
    "Amphitrema wrightianum",
    "Arcella discoides",
    "Assulina muscorum",
    "Assulina seminulum",
    "Bullinularia indica",
    "Centropyxis aculeata",
    "Corythion dubium",
    "Cryptodifflugia oviformis",
    "Cyclopyxis arcelloides",
    "Difflugia pulex",
    "Difflugia pristis",
    "Euglypha rotunda",
    "Euglypha strigosa",
    "Heleopera petricola",
    "Heleopera sylvatica",
    "Hyalosphenia elegans",
    "Hyalosphenia papilio",
    "Hyalosphenia subflava",
    "Nebela militaris",
    "Nebela tincta",
    "Phryganella acropodia",
    "Trigonopyxis arcula",
    "Trinema lineare",
]


class Cores(Dataset):
    """Synthetic cores: a smooth water table, unimodal responses of the taxa, counts of 150 tests per slice."""

    def __init__(self, n: int, seed: int):
        ecology = np.random.default_rng(1902)
        optimum = ecology.uniform(0, 45, len(TAXA))
        tolerance = ecology.uniform(4, 12, len(TAXA))
        frequency = ecology.gamma(2.0, 1.0, len(TAXA))
        decay = ecology.uniform(0.0, 0.05, len(TAXA))

        rng = np.random.default_rng(seed)
        table = 20 + rng.normal(0, 8, (n, 1)) + np.cumsum(rng.normal(0, 2.2, (n, SLICES)), 1)
        table = table.clip(-2, 50)
        burnt = rng.random((n, SLICES)) < 0.06
        seen = table + 6 * burnt
        response = frequency * np.exp(-((seen[..., None] - optimum) ** 2) / (2 * tolerance**2))
        response = response * np.exp(-decay * np.arange(SLICES)[:, None]) + 1e-3
        response *= rng.gamma(6.0, 1 / 6.0, response.shape)
        counts = rng.poisson(150 * response / response.sum(-1, keepdims=True))
        share = counts / counts.sum(-1, keepdims=True).clip(1)

        self.tests = torch.from_numpy(np.sqrt(share)).float()
        self.depth = torch.from_numpy(np.linspace(0, 1, SLICES)[None] + rng.normal(0, 0.01, (n, SLICES))).float()
        self.labels = torch.from_numpy(np.stack([(table - 20) / 12, burnt], -1)).float()

    def __len__(self):
        return len(self.tests)

    def __getitem__(self, i):
        return {"tests": self.tests[i], "depth": self.depth[i], "labels": self.labels[i]}


class BogFormer(nn.Module):
    def __init__(self, width: int = 128, layers: int = 3, heads: int = 4):
        super().__init__()
        self.taxa = nn.Linear(len(TAXA), width)
        self.down = nn.Sequential(nn.Linear(1, 32), nn.GELU(), nn.Linear(32, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, width * 2, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.table = nn.Linear(width, 1)
        self.fire = nn.Linear(width, 1)

    def forward(self, tests, depth, labels=None):
        h = self.taxa(tests) + self.down(depth.unsqueeze(-1))
        h = self.norm(self.encoder(h))
        logits = torch.cat([self.table(h), self.fire(h)], -1)
        out = {"logits": logits}
        if labels is not None:
            level = F.smooth_l1_loss(logits[..., 0], labels[..., 0])
            fire = F.binary_cross_entropy_with_logits(logits[..., 1], labels[..., 1])
            out = {"loss": level + 0.2 * fire, "logits": logits}
        return out


def palaeo_metrics(pred):
    guess, truth = pred.predictions[..., 0] * 12 + 20, pred.label_ids[..., 0] * 12 + 20
    residual = guess - truth
    burnt, alarm = pred.label_ids[..., 1] > 0.5, pred.predictions[..., 1] > 0
    hit = (burnt & alarm).sum()
    return {
        "rmsep_cm": float(np.sqrt((residual**2).mean())),
        "max_bias_cm": float(max(abs(r.mean()) for r in np.array_split(residual.ravel()[truth.ravel().argsort()], 10))),
        "r2": float(1 - (residual**2).sum() / ((truth - truth.mean()) ** 2).sum()),
        "fire_f1": float(2 * hit / max(burnt.sum() + alarm.sum(), 1)),
    }


class Stopwatch(TrainerCallback):
    began = took = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.took = time.perf_counter() - self.began


def main():
    set_seed(14)
    train, valid = Cores(3200, seed=1), Cores(1280, seed=2)
    args = TrainingArguments(
        output_dir="bog",
        max_steps=520,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        learning_rate=8e-4,
        warmup_steps=30,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_steps=100,
        eval_strategy="steps",
        eval_steps=EVAL_EVERY,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        label_names=["labels"],
        disable_tqdm=True,
        seed=14,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=BogFormer(),
        args=args,
        train_dataset=train,
        eval_dataset=valid,
        compute_metrics=palaeo_metrics,
        callbacks=[watch],
    )
    trainer.train()
    final = trainer.evaluate()
    print(f"water table: RMSEP {final['eval_rmsep_cm']:.2f} cm, R2 {final['eval_r2']:.3f}")
    print(f"{args.max_steps * args.per_device_train_batch_size / watch.took:.1f} cores/s")


if __name__ == "__main__":
    main()
