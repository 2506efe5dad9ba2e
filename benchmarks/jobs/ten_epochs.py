"""Ten epochs, each with an evaluation and a checkpoint: `ten_epochs.py plain|lightning|transformers`.

An epoch is 200 steps of 5 ms or so on one thread; its loader starts a worker anew.
"""

import sys
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 10
WIDTH = 512
BATCH = 128


class Rows(Dataset):
    """Some features and a class."""

    def __init__(self, batches: int) -> None:
        torch.manual_seed(batches)
        self.rows = torch.randn(batches * BATCH, 64)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"x": self.rows[index], "labels": int(self.rows[index, 0] > 0)}


class Model(nn.Module):
    """As the Trainer of transformers calls one."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (64, WIDTH, WIDTH, WIDTH)
        layers = [part for one, two in pairwise(sizes) for part in (nn.Linear(one, two), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, 2))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def plain(model, train, valid) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    loader, held_out = DataLoader(train, BATCH, shuffle=True, num_workers=1), DataLoader(valid, BATCH)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print(sum(model(**batch)["loss"].item() for batch in held_out) / len(held_out))
        model.train()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")


def lightning(model, train, valid) -> None:
    import lightning

    class Wrapped(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            return self.model(**batch)["loss"]

        def validation_step(self, batch, index):
            self.log("loss", self.model(**batch)["loss"])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(accelerator="cpu", max_epochs=EPOCHS, logger=False, enable_progress_bar=False)
    trainer.fit(Wrapped(), DataLoader(train, BATCH, shuffle=True, num_workers=1), DataLoader(valid, BATCH))


def transformers(model, train, valid) -> None:
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        "there",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        eval_strategy="epoch",
        save_strategy="epoch",
        dataloader_num_workers=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model, args, train_dataset=train, eval_dataset=valid).train()


if __name__ == "__main__":
    # The classes are learnt so well that gradients become subnormal numbers: later steps would take an Intel CPU four
    # times as long, which nobody can know from the first ones.
    torch.set_flush_denormal(True)
    {"plain": plain, "lightning": lightning, "transformers": transformers}[sys.argv[1]](Model(), Rows(200), Rows(30))
