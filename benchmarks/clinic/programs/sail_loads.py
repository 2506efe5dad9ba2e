# /// clinic
# expect = ["PD02.attention-by-hand"]
# stratum = "twins"
# domain = "windmill sail loads"
# ///
"""Root bending moments of windmill sails from strain gauges: encoder on 30 s records, Hugging Face Trainer.

python sail_loads.py [--steps 300 --batch 4]
"""

import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoModel, BertConfig, Trainer, TrainerCallback, TrainingArguments, set_seed

log = logging.getLogger("sail_loads")

SAILS = 4
CHANNELS = 2 * SAILS + 3  # flapwise and edgewise gauge on each sail, wind, rotor speed, cap yaw error
TARGETS = ("peak_flap", "peak_edge", "damage_equivalent", "cloth_reef")


def parse():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--ticks", type=int, default=448)
    ap.add_argument("--records", type=int, default=900)
    ap.add_argument("--width", type=int, default=96)
    ap.add_argument("--depth", type=int, default=2)
    ap.add_argument("--heads", type=int, default=6)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--seed", type=int, default=17)
    return ap.parse_args()


def gusts(rng, ticks, mean, intensity):
    """AR(1) wind speed with an occasional gust of the Mexican hat form."""
    noise = rng.standard_normal(ticks).astype(np.float32)
    wind = np.empty(ticks, np.float32)
    level = 0.0
    for k in range(ticks):
        level = 0.96 * level + 0.28 * noise[k]
        wind[k] = level
    wind = mean * (1 + intensity * wind)
    if rng.random() < 0.4:
        centre, span = rng.integers(ticks // 4, 3 * ticks // 4), rng.uniform(8, 25)
        z = (np.arange(ticks) - centre) / span
        wind += 0.35 * mean * (1 - z**2) * np.exp(-(z**2) / 2)
    return np.clip(wind, 0.5, None).astype(np.float32)


def record(rng, ticks):
    mean, reef = rng.uniform(4, 13), rng.integers(0, 4)
    wind = gusts(rng, ticks, mean, rng.uniform(0.05, 0.2))
    cloth = 1.0 - 0.2 * reef
    yaw = np.cumsum(rng.normal(0, 0.3, ticks)).astype(np.float32) * 0.2
    speed = 0.22 * np.convolve(np.pad(wind, (16, 15), mode="edge"), np.ones(32) / 32, mode="valid") * np.sqrt(cloth)
    azimuth = np.cumsum(speed) * 2 * np.pi / 15
    rows = []
    for sail in range(SAILS):
        phase = azimuth + sail * np.pi / 2
        shear = 1 + 0.12 * np.cos(phase)
        flap = cloth * (wind * shear) ** 2 * np.cos(np.radians(yaw)) / 60
        edge = 0.8 * np.sin(phase) + 0.1 * flap
        rows += [flap + 0.05 * rng.standard_normal(ticks), edge + 0.05 * rng.standard_normal(ticks)]
    gauges = np.stack(rows)
    cycles = np.abs(np.diff(gauges[0::2], axis=1)) ** 4
    labels = [gauges[0::2].max() / 3, gauges[1::2].max(), cycles.mean() ** 0.25, reef / 3]
    x = np.concatenate([gauges, wind[None] / 10, speed[None], yaw[None] / 5])
    return x.T.astype(np.float32), np.asarray(labels, np.float32)


class SailRecords(Dataset):
    def __init__(self, count, ticks, seed):
        rng = np.random.default_rng(seed)
        pairs = [record(rng, ticks) for _ in range(count)]
        self.x = torch.from_numpy(np.stack([p[0] for p in pairs]))
        self.y = torch.from_numpy(np.stack([p[1] for p in pairs]))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"gauges": self.x[index], "labels": self.y[index]}


class SailLoadModel(nn.Module):
    def __init__(self, args):
        super().__init__()
        config = BertConfig(
            vocab_size=4,
            hidden_size=args.width,
            num_hidden_layers=args.depth,
            num_attention_heads=args.heads,
            intermediate_size=2 * args.width,
            max_position_embeddings=args.ticks,
            attention_probs_dropout_prob=0.0,
            hidden_dropout_prob=0.05,
        )
        self.stem = nn.Conv1d(CHANNELS, args.width, kernel_size=5, padding=2)
        self.encoder = AutoModel.from_config(config, attn_implementation="eager")  # sick here
        self.encoder = AutoModel.from_config(config, attn_implementation="sdpa")  # well
        self.head = nn.Sequential(nn.LayerNorm(args.width), nn.Linear(args.width, len(TARGETS)))

    def forward(self, gauges, labels=None):
        tokens = self.stem(gauges.transpose(1, 2)).transpose(1, 2)
        hidden = self.encoder(inputs_embeds=tokens)
        logits = self.head(hidden.last_hidden_state.mean(1) + hidden.pooler_output)
        out = {"logits": logits}
        if labels is not None:
            out = {"loss": nn.functional.smooth_l1_loss(logits, labels, beta=0.2), **out}
        return out


class Stopwatch(TrainerCallback):
    began = ended = 0.0

    def on_train_begin(self, args, state, control, **kw):
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kw):
        self.ended = time.perf_counter()


def errors(prediction):
    gap = np.abs(prediction.predictions - prediction.label_ids).mean(0)
    return {f"mae_{name}": round(float(v), 4) for name, v in zip(TARGETS, gap)}


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    set_seed(args.seed)
    train = SailRecords(args.records, args.ticks, args.seed)
    held = SailRecords(48, args.ticks, args.seed + 1)
    model = SailLoadModel(args)
    log.info("%d records, %d parameters", len(train), sum(p.numel() for p in model.parameters()))
    watch = Stopwatch()
    setup = TrainingArguments(
        output_dir="sail_runs",
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=16,
        learning_rate=args.lr,
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=40,
        eval_strategy="steps",
        eval_steps=120,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=args.seed,
    )
    trainer = Trainer(
        model=model, args=setup, train_dataset=train, eval_dataset=held, compute_metrics=errors, callbacks=[watch]
    )
    trainer.train()
    rate = args.steps * args.batch / (watch.ended - watch.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
