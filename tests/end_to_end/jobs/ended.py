"""Far more steps than anybody watches: `ended.py lightning|transformers DIRECTORY`."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, SAMPLES = 500, 16, 1600


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, x, labels=None):
        out = self.layers(x)
        return out if labels is None else {"loss": nn.functional.cross_entropy(out, labels), "logits": out}


def data():
    torch.manual_seed(0)
    return torch.randn(SAMPLES, 32), torch.randint(0, 4, (SAMPLES,))


def lightning(directory):
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", default_root_dir=directory, **quiet)
    trainer.fit(Module(), DataLoader(TensorDataset(*data()), batch_size=BATCH, shuffle=True))


def transformers(directory):
    from transformers import Trainer, TrainingArguments

    rows = [{"x": x, "labels": int(y)} for x, y in zip(*data(), strict=True)]
    quiet = {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    size = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH}
    Trainer(model=Net(), args=TrainingArguments(output_dir=directory, **size, **quiet), train_dataset=rows).train()


{"lightning": lightning, "transformers": transformers}[sys.argv[1]](sys.argv[2])
