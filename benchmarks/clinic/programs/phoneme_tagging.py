# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "audio: phoneme recognition with CTC"
# ///
"""Phoneme recognition for interviews with second-language speakers, trained with CTC on log-mel frames.

Speakers differ a lot in tempo and in how long they pause, so recordings run from under a second to many seconds.
Utterances of like length are put in the same batch.
"""

import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler


MELS = 40
PHONEMES = 44  # 0 is the CTC blank


class Utterance:
    __slots__ = ("mel", "phones")

    def __init__(self, mel, phones):
        self.mel = mel
        self.phones = phones


class InterviewCorpus(Dataset):
    """Synthetic interviews: each phoneme has a spectral shape held for some frames, pauses are noise."""

    def __init__(self, utterances, seed):
        gen = torch.Generator().manual_seed(seed)
        shapes = torch.randn(PHONEMES, MELS, generator=gen)
        shapes[0] = 0.0
        self.items = [self._speak(shapes, gen) for _ in range(utterances)]

    @staticmethod
    def _speak(shapes, gen):
        count = int(torch.randint(6, 26, (1,), generator=gen))
        phones = torch.randint(1, PHONEMES, (count,), generator=gen)
        tempo = float(torch.randn(1, generator=gen).mul(0.55).exp()) * 7.0
        hold = (torch.rand(count, generator=gen) * tempo + 5.0).long()
        pause = (torch.rand(count, generator=gen) < 0.2).long() * (torch.rand(count, generator=gen) * tempo * 6).long()
        track = torch.stack([phones, torch.zeros_like(phones)], 1).flatten()
        track = track.repeat_interleave(torch.stack([hold, pause], 1).flatten())[:800]
        mel = shapes[track] + 0.4 * torch.randn(len(track), MELS, generator=gen)
        return Utterance(mel, phones)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class SimilarLengthSampler(Sampler):
    """Shuffles, sorts pools of several batches by length, cuts them into batches and shuffles the batches."""

    def __init__(self, lengths, batch_size, pool=20, seed=0):
        self.lengths = lengths
        self.batch_size = batch_size
        self.pool = pool * batch_size
        self.random = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        order = list(range(len(self.lengths)))
        self.random.shuffle(order)
        batches = []
        for start in range(0, len(order), self.pool):
            pool = sorted(order[start : start + self.pool], key=self.lengths.__getitem__)
            batches += [
                pool[i : i + self.batch_size] for i in range(0, len(pool) - self.batch_size + 1, self.batch_size)
            ]
        self.random.shuffle(batches)
        return iter(batches)


def collate(utterances):
    mels = pad_sequence([u.mel for u in utterances], batch_first=True)
    frames = torch.tensor([len(u.mel) for u in utterances])
    phones = torch.cat([u.phones for u in utterances])
    counts = torch.tensor([len(u.phones) for u in utterances])
    return mels, frames, phones, counts


class PhonemeTagger(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.subsample = nn.Conv1d(MELS, width, 5, stride=2, padding=2)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.local = nn.Conv1d(width, width, 7, padding=3, groups=4)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, PHONEMES)

    def forward(self, mels, frames):
        x = torch.relu(self.subsample(mels.transpose(1, 2)))
        x = (x + torch.relu(self.local(x))).transpose(1, 2)
        frames = (frames + 1) // 2
        padding = torch.arange(x.shape[1]) >= frames[:, None]
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.head(x).log_softmax(-1), frames


class Recipe:
    def __init__(self, corpus, epochs=6, batch_size=24):
        self.epochs = epochs
        lengths = [len(u.phones) for u in corpus.items]  # sick here
        lengths = [len(u.mel) for u in corpus.items]  # well
        sampler = SimilarLengthSampler(lengths, batch_size, seed=3)  # here
        self.loader = DataLoader(corpus, batch_sampler=sampler, collate_fn=collate)
        self.model = PhonemeTagger()
        self.loss = nn.CTCLoss(zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def fit(self):
        begun = time.perf_counter()
        step = 0
        for epoch in range(self.epochs):
            for mels, frames, phones, counts in self.loader:
                scores, frames = self.model(mels, frames)
                loss = self.loss(scores.transpose(0, 1), phones, frames, counts)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                step += 1
                if step % 40 == 0:
                    print(
                        f"epoch {epoch} step {step} ctc {loss.item():.3f} {time.perf_counter() - begun:.1f} s",
                        flush=True,
                    )


def main():
    torch.manual_seed(0)
    Recipe(InterviewCorpus(1440, seed=5)).fit()


if __name__ == "__main__":
    main()
