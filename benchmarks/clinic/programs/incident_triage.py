# /// clinic
# expect = ["PD05.padded-batches"]
# allow = ["PD05.batch-too-small", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "text"
# sizes = {WIDTH = [96, 128], LONGEST = [128, 192]}
# ///
"""Which team gets the ticket: short texts, a small transformer."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WIDTH = 96
LONGEST = 160
WORDS = 4000
TEAMS = 12
TICKETS = 3200


class Tickets(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.team = torch.randint(TEAMS, (count,), generator=g)
        lengths = (12 + 10 * torch.randn(count, generator=g).abs() * 1.6).long().clamp(max=LONGEST)
        self.texts = [
            torch.randint(4 + 300 * int(team), 304 + 300 * int(team), (int(length),), generator=g)
            for team, length in zip(self.team, lengths)
        ]

    def __len__(self):
        return len(self.team)

    def __getitem__(self, i):
        return self.texts[i], self.team[i]


def collate(samples):
    texts, teams = zip(*samples)
    words = torch.zeros(len(texts), LONGEST, dtype=torch.long)  # sick here
    for row, text in enumerate(texts):  # sick
        words[row, : len(text)] = text  # sick
    words = pad_sequence(texts, batch_first=True)  # well
    return words, torch.stack(teams)


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TEAMS)

    def forward(self, words):
        padding = words == 0
        h = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        h = self.body(h, src_key_padding_mask=padding)
        h = h.masked_fill(padding.unsqueeze(-1), 0).sum(1) / (~padding).sum(1, keepdim=True)
        return self.head(h)


def main():
    torch.manual_seed(2)
    loader = DataLoader(Tickets(TICKETS, 1), batch_size=32, shuffle=True, collate_fn=collate)
    model = Router()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    seen, began = 0, time.perf_counter()
    for epoch in range(4):
        if epoch == 1:
            seen, began = 0, time.perf_counter()
        for words, teams in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), teams)
            loss.backward()
            optimizer.step()
            seen += len(teams)
        print(f"epoch {epoch} loss {loss.item():.3f}")
    print(f"{seen / (time.perf_counter() - began):.1f} tickets/s")


if __name__ == "__main__":
    main()
