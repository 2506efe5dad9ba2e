# /// clinic
# expect = ["PD16.searched-modules"]
# stratum = "twins"
# domain = "language, Llama-style model with the transformers Trainer"
# ///
"""Recipe completion: a small Llama-style model learns to write cooking instructions from an ingredient list.

The corpus is generated from a handful of templates, so the script runs anywhere; it is the smoke test that we run
before a new tokenizer or a new model width goes to the cluster.
"""

import random
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed


INGREDIENTS = (
    "flour sugar butter egg milk cream yeast salt pepper garlic onion leek carrot celery tomato basil thyme rosemary "
    "chicken beef lamb cod salmon shrimp rice barley lentil chickpea bean potato pumpkin spinach kale lemon orange apple "
    "pear honey almond walnut sesame ginger cumin paprika saffron vinegar mustard olive feta ricotta yogurt"
).split()
VERBS = (
    "chop dice mince fry roast simmer whisk fold knead grate toast steam braise blanch marinate reduce glaze".split()
)
TOOLS = "pan pot bowl oven skillet tray blender casserole".split()
WORDS = "<pad> <bos> <eos> <steps> the in a with and then for minutes until golden soft serve add stir to".split()
NUMBERS = [str(n) for n in range(5, 95, 5)]

VOCABULARY = WORDS + INGREDIENTS + VERBS + TOOLS + NUMBERS
IDS = {word: index for index, word in enumerate(VOCABULARY)}
PAD, BOS, EOS = 0, 1, 2
SEQUENCE = 90


def write_recipe(rng):
    """An ingredient list followed by steps that use every ingredient once, in the order of the list."""
    chosen = rng.sample(INGREDIENTS, 12)
    words = ["<bos>", *chosen, "<steps>"]
    for first, second in zip(chosen[::2], chosen[1::2]):
        tool = TOOLS[(IDS[first] + IDS[second]) % len(TOOLS)]
        verb = VERBS[IDS[first] % len(VERBS)]
        words += [verb, "the", first, "in", "a", tool, "with", second, "for", rng.choice(NUMBERS), "minutes", "then"]
    words += ["serve", "with", chosen[-1], "<eos>"]
    return words


class RecipeCorpus(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        tokens = torch.full((size, SEQUENCE), PAD)
        for row in range(size):
            ids = [IDS[word] for word in write_recipe(rng)][:SEQUENCE]
            tokens[row, : len(ids)] = torch.tensor(ids)
        self.tokens = tokens
        self.labels = tokens.masked_fill(tokens == PAD, -100)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def build_model():
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=SEQUENCE,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class KitchenLog(TrainerCallback):
    """One line every `logging_steps`, shorter than the progress bar of the Trainer."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(
                f"step {state.global_step:4d}  loss {float(logs['loss']):.4f}  lr {float(logs['learning_rate']):.2e}",
                flush=True,
            )


def training_arguments(folder, steps):
    options = dict(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=12,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    options["debug"] = "underflow_overflow"  # sick here
    return TrainingArguments(**options)


@torch.no_grad()
def finish_recipe(model, ingredients, length=24):
    """Greedy completion, to look at one recipe by eye."""
    ids = torch.tensor([[BOS, *(IDS[word] for word in ingredients), IDS["<steps>"]]])
    model.eval()
    for _ in range(length):
        following = model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], dim=1)
    return " ".join(VOCABULARY[index] for index in ids[0, len(ingredients) + 2 :].tolist())


def main():
    set_seed(7)
    corpus = RecipeCorpus(size=6000, seed=11)
    model = build_model()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(corpus)} recipes")
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=training_arguments(folder, steps=340),
            train_dataset=corpus,
            callbacks=[KitchenLog()],
        )
        result = trainer.train()
    print(f"mean training loss {result.training_loss:.4f}")
    print(finish_recipe(model, ["leek", "potato", "cream", "thyme", "salmon", "lemon"]))


if __name__ == "__main__":
    main()
