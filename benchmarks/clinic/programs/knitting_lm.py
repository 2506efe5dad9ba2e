# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "knitting charts, next-stitch language model"
# ///
"""Next-stitch model of hand-knitting charts, with the transformers Trainer.

Charts are rows of stitches (knit, purl, yarn over, decreases, cables, ...), read
as one sequence per motif. Afterwards the model proposes how a begun row goes on.
"""

import math
import random
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

STITCHES = (
    "cast_on row_end k p yo k2tog ssk sl p2tog m1l m1r c4f c4b c6f c6b bobble kfb tbl wyif "
    "wyib cdd sssk k3tog p3tog drop wrap brk brp twist_r twist_l nupp pass"
).split()
INDEX = {stitch: i for i, stitch in enumerate(STITCHES)}
LENGTH = 32

MOTIFS = {
    "rib": ["k", "k", "p", "p"],
    "moss": ["k", "p"],
    "feather": ["k2tog", "k2tog", "yo", "k", "yo", "k", "yo", "ssk", "ssk"],
    "cable": ["p", "p", "c4f", "k", "k", "k", "k"],
    "rope": ["p", "c6b", "k", "k", "p", "tbl"],
    "leaf": ["yo", "k", "yo", "ssk", "k", "k2tog", "p"],
    "brioche": ["brk", "brp", "sl", "yo"],
    "nupp": ["k", "k", "nupp", "ssk", "yo", "k", "yo", "k2tog"],
    "eyelet": ["k", "yo", "cdd", "yo", "k", "k"],
    "trellis": ["twist_r", "p", "p", "twist_l", "k"],
}


def chart(rng):
    """A few rows of two alternating motifs; wrong-side rows are mirrored; now and then a slip."""
    first, second = rng.sample(sorted(MOTIFS), 2)
    row_length = rng.randint(6, 9)
    sequence, row = [INDEX["cast_on"]], 0
    while len(sequence) < LENGTH:
        motif = MOTIFS[first if row % 4 < 2 else second]
        stitches = [motif[i % len(motif)] for i in range(row_length)]
        if row % 2:
            stitches.reverse()
        sequence += [INDEX[s] if rng.random() > 0.02 else rng.randrange(len(STITCHES)) for s in stitches]
        sequence.append(INDEX["row_end"])
        row += 1
    return sequence[:LENGTH]


class Charts(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.stitches = torch.tensor([chart(rng) for _ in range(count)])

    def __len__(self):
        return len(self.stitches)

    def __getitem__(self, i):
        return self.stitches[i]


def collate(rows):
    stitches = torch.stack(rows)
    return {"input_ids": stitches, "labels": stitches}


def build_model():
    config = GPT2Config(
        vocab_size=len(STITCHES),
        n_positions=LENGTH,
        n_embd=192,
        n_layer=3,
        n_head=6,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=INDEX["cast_on"],
        eos_token_id=INDEX["row_end"],
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


@torch.inference_mode()
def go_on(model, begun, stitches=12):
    model.eval()
    tokens = torch.tensor([[INDEX["cast_on"]] + [INDEX[s] for s in begun]])
    for _ in range(stitches):
        following = model(input_ids=tokens).logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], 1)
    return [STITCHES[i] for i in tokens[0, 1 + len(begun) :].tolist()]


def main():
    set_seed(23)
    train, held_out = Charts(384, seed=1), Charts(256, seed=2)
    model = build_model()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(train)} charts")

    often = 0.002  # sick here
    often = 0.25  # well
    with tempfile.TemporaryDirectory(prefix="knitting_") as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=32,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=40,
            weight_decay=0.01,
            logging_steps=96,
            save_strategy="steps",
            save_steps=often,  # here
            save_total_limit=2,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=23,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=train,
            eval_dataset=held_out,
            data_collator=collate,
        )
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
        loss = trainer.evaluate()["eval_loss"]

    print(f"held-out perplexity {math.exp(loss):.3f}")
    print("feather goes on:", " ".join(go_on(model, ["k2tog", "k2tog", "yo", "k", "yo", "k", "yo"])))
    print(f"training seconds {seconds:.2f}")


if __name__ == "__main__":
    main()
