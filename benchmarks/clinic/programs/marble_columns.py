# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "four in a row"
# ///
"""Learns to pick a column in four-in-a-row with glass marbles."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, COLUMNS = 6, 7
BOARDS = 6400
BATCH = 64
EPOCHS = 7


def fill_boards(count):
    """Boards after random play: plane 0 holds our marbles, plane 1 theirs, row 0 is the top."""
    heights = torch.randint(0, ROWS + 1, (count, 1, COLUMNS))
    heights[:, 0, 3].clamp_(max=ROWS - 1)
    row = torch.arange(ROWS).view(1, ROWS, 1)
    taken = row >= ROWS - heights
    ours = torch.rand(count, ROWS, COLUMNS) < 0.5
    return torch.stack([taken & ours, taken & ~ours], dim=1).float()


def best_columns(boards):
    """The column whose neighbourhood holds most of our marbles, among those with room."""
    kernel = torch.tensor([[0.5, 1.0, 0.5]]).repeat(3, 1).view(1, 1, 3, 3)
    near = nn.functional.conv2d(boards[:, :1] - 0.6 * boards[:, 1:], kernel, padding=1)
    score = near.amax(dim=(1, 2)) + 0.01 * torch.arange(COLUMNS)
    return score.masked_fill(boards[:, :, 0].sum(1) > 0, -100.0).argmax(1)


class MarbleNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.start = nn.Conv2d(2, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.policy = nn.Linear(width * ROWS * COLUMNS, COLUMNS)

    def forward(self, boards):
        x = torch.relu(self.start(boards))
        for conv in self.middle:
            x = torch.relu(conv(x)) + x
        logits = self.policy(x.flatten(1))
        full = torch.zeros(logits.shape, dtype=torch.bool)  # sick
        for i in range(len(boards)):  # sick here
            for c in range(COLUMNS):  # sick here
                if boards[i, 0, 0, c] + boards[i, 1, 0, c] > 0:  # sick
                    full[i, c] = True  # sick
        full = boards[:, :, 0].sum(1) > 0  # well
        return logits.masked_fill(full, -1e4)


def main():
    torch.manual_seed(0)
    boards = fill_boards(BOARDS + 1000)
    columns = best_columns(boards)
    loader = DataLoader(TensorDataset(boards[:BOARDS], columns[:BOARDS]), batch_size=BATCH, shuffle=True)
    model = MarbleNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for x, y in loader:
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += len(y)
        print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}")
    elapsed = time.perf_counter() - began

    model.eval()
    with torch.no_grad():
        right = (model(boards[BOARDS:]).argmax(1) == columns[BOARDS:]).float().mean().item()
    print(f"same pick as the teacher on new boards: {right:.3f}")
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
