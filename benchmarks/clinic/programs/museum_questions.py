# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "retrieval for a museum's audio guide"
# ///
"""Match visitors' questions with the catalogue texts that answer them: a two-tower retrieval model for a museum's audio guide.

Questions are a dozen words, catalogue texts a passage of some 120. Each tower is a small transformer with mean pooling; the loss is the usual
in-batch contrastive one. Here the texts come from a topic model, so that the script runs without the museum's database.
"""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


WORDS = 4000
TOPICS = 80
PAIRS = 3200
WIDTH = 128
BATCH = 16
EPOCHS = 1


class CataloguePairs(Dataset):
    """A question and the text of the object it was asked about, as lists of word numbers (0 is kept for padding)."""

    def __init__(self, pairs, seed):
        generator = torch.Generator().manual_seed(seed)
        vocabulary = torch.randint(1, WORDS, (TOPICS, 40), generator=generator)
        self.questions, self.texts = [], []
        for _ in range(pairs):
            topics = torch.randint(TOPICS, (3,), generator=generator)
            own = vocabulary[topics].flatten()
            asked = int(torch.randint(12, 17, (), generator=generator))
            written = int(torch.randint(118, 129, (), generator=generator))
            self.questions.append(own[torch.randint(len(own), (asked,), generator=generator)])
            text = own[torch.randint(len(own), (written,), generator=generator)]
            common = torch.rand(written, generator=generator) < 0.4
            self.texts.append(torch.where(common, torch.randint(1, 400, (written,), generator=generator), text))

    def __len__(self):
        return len(self.questions)

    def __getitem__(self, index):
        return self.questions[index], self.texts[index]


def collate(pairs):
    questions, texts = zip(*pairs)
    words = pad_sequence(list(questions) + list(texts), batch_first=True)  # sick here
    return words[: len(pairs)], words[len(pairs) :]  # sick here
    return pad_sequence(questions, batch_first=True), pad_sequence(texts, batch_first=True)  # well


def sinusoids(length, width):
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class Tower(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.register_buffer("positions", sinusoids(160, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 3 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, words, embedded):
        padding = words == 0
        hidden = self.encoder(embedded + 0.2 * self.positions[: words.shape[1]], src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).float()
        return (hidden * kept).sum(1) / kept.sum(1)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.question_tower = Tower(layers=4)
        self.text_tower = Tower(layers=2)
        self.project = nn.Linear(WIDTH, 96)
        self.scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, questions, texts):
        asked = self.question_tower(questions, self.embed(questions))
        written = self.text_tower(texts, self.embed(texts))
        asked, written = F.normalize(self.project(asked), dim=-1), F.normalize(self.project(written), dim=-1)
        return asked @ written.T * self.scale.exp()


torch.manual_seed(7)
pairs = CataloguePairs(PAIRS, seed=1)
loader = DataLoader(pairs, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
model = Matcher()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
right_answers = torch.arange(BATCH)

step = 0
hits = torch.zeros(())
total = torch.zeros(())
start = time.time()
for _epoch in range(EPOCHS):
    for questions, texts in loader:
        scores = model(questions, texts)
        loss = (F.cross_entropy(scores, right_answers) + F.cross_entropy(scores.T, right_answers)) / 2
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        hits += (scores.detach().argmax(1) == right_answers).sum()
        step += 1
        if step % 20 == 0:
            print(
                f"step {step:4d}  loss {total.item() / 20:.3f}  top-1 in batch {hits.item() / 20 / BATCH:.1%}  "
                f"{step / (time.time() - start):.1f} steps/s"
            )
            total.zero_()
            hits.zero_()
print(f"done: {step} steps in {time.time() - start:.1f} s")
