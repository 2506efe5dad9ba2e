# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "chess endgame king and pawn against king"
# ///
"""King and pawn against king: guess from the bare squares how the pawn race ends.

The labels come from the rules of thumb of the endgame books (rule of the square, key squares, opposition),
on randomly drawn positions. Trained with Accelerate, curves go to TensorBoard.
"""

import os
import tempfile
import shutil
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

OUTCOMES = ["pawn runs through", "king escorts the pawn", "draw by opposition", "pawn is caught"]


def draw_positions(n, seed):
    g = torch.Generator().manual_seed(seed)
    pawn = torch.randint(8, 56, (n,), generator=g)
    white = torch.randint(0, 64, (n,), generator=g)
    black = torch.randint(0, 64, (n,), generator=g)
    to_move = torch.randint(0, 2, (n,), generator=g)
    return torch.stack([pawn, white, black, to_move], dim=1)


def judge(positions):
    pawn, white, black, to_move = positions.unbind(1)
    pf, pr = pawn % 8, pawn // 8
    wf, wr = white % 8, white // 8
    bf, br = black % 8, black // 8
    run = 7 - pr - (pr == 1).long()
    chase = torch.maximum((bf - pf).abs(), 7 - br) - to_move
    escort = torch.maximum((wf - pf).abs(), (wr - pr - 1).abs())
    facing = (wf == bf) & ((br - wr) == 2) & (to_move == 1)
    label = torch.full_like(pawn, 3)
    label[escort <= 2] = 1
    label[facing | ((escort <= 2) & (chase <= 1))] = 2
    label[chase > run] = 0
    return label


class Positions(Dataset):
    def __init__(self, n, seed):
        self.positions = draw_positions(n, seed)
        self.labels = judge(self.positions)

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.positions[rows], self.labels[rows]


class PositionNet(nn.Module):
    def __init__(self, dim=64, width=384):
        super().__init__()
        self.pieces = nn.ModuleList([nn.Embedding(64, dim) for _ in range(3)])
        self.turn = nn.Embedding(2, dim)
        self.body = nn.Sequential(
            nn.Linear(4 * dim, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, len(OUTCOMES)),
        )

    def forward(self, positions):
        parts = [table(positions[:, i]) for i, table in enumerate(self.pieces)]
        parts.append(self.turn(positions[:, 3]))
        return self.body(torch.cat(parts, dim=1))


class Curves:
    """Thin layer over the TensorBoard writer of the accelerator."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.writer = accelerator.get_tracker("tensorboard", unwrap=True)

    def scalars(self, step, **values):
        self.accelerator.log(values, step=step)

    def distributions(self, model, step):
        for name, p in self.accelerator.unwrap_model(model).named_parameters():
            name = name.replace(".", "/")
            self.writer.add_histogram(f"weights/{name}", p.detach(), step)  # here
            if p.grad is not None:
                self.writer.add_histogram(f"gradients/{name}", p.grad, step)  # here


@torch.inference_mode()
def evaluate(accelerator, model, loader):
    model.eval()
    right = seen = 0
    for positions, labels in loader:
        guesses, labels = accelerator.gather_for_metrics((model(positions).argmax(1), labels))
        right += (guesses == labels).sum().item()
        seen += len(labels)
    return right / seen


def train(epochs, folder):
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
    accelerator.init_trackers("kpk")
    set_seed(21)
    train_loader = DataLoader(Positions(24576, 1), 512, shuffle=True, drop_last=True, collate_fn=tuple)
    test_loader = DataLoader(Positions(4096, 2), 1024, collate_fn=tuple)
    model = PositionNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train_loader))
    model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, test_loader, schedule
    )
    curves = Curves(accelerator)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(epochs):
        model.train()
        for positions, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(positions), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % 25 == 0:
                curves.scalars(step, loss=loss.item(), lr=schedule.get_last_lr()[0])
                curves.distributions(model, step)  # sick here
        if (epoch + 1) % 25 == 0:  # well
            curves.distributions(model, step)  # well
        accuracy = evaluate(accelerator, model, test_loader)
        curves.scalars(step, accuracy=accuracy)
        accelerator.print(f"epoch {epoch + 1:3d}  loss {loss.item():.4f}  accuracy {accuracy:.3f}", flush=True)
    accelerator.end_training()


def main():
    folder = tempfile.mkdtemp()
    start = time.perf_counter()
    train(int(os.environ.get("EPOCHS", "55")), folder)
    seconds = time.perf_counter() - start
    shutil.rmtree(folder, ignore_errors=True)
    print(f"total training seconds: {seconds:.2f}")


if __name__ == "__main__":
    main()
