# /// clinic
# expect = ["PD10.called-in-turn"]
# stratum = "twins"
# domain = "harpsichord jacks"
# ///
# coding: utf-8
# Transcription of harpsichord jack sensors (optical plectrum heights) into key events.
# Exported from jacks_seq2seq.ipynb (2018, torch 0.4; last touched for 1.13)

# In[1]:
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAD, SOS = 0, 1
KEYS = 61
VOCAB = KEYS + 2
SENSORS, SAMPLES_PER_EVENT = 8, 8
MAX_EVENTS = 48

random.seed(5)
np.random.seed(5)
torch.manual_seed(5)


# In[2]:
# Each key lifts its jack: a damped swing with its own pattern over the eight optical rails.
def jack_templates(rng):
    t = np.arange(SAMPLES_PER_EVENT)[None, None, :]
    gain = rng.normal(0, 1, (VOCAB, SENSORS, 1))
    swing = np.exp(-t / 4.0) * np.cos(t * rng.uniform(0.3, 1.5, (VOCAB, 1, 1)))
    out = (gain * swing).astype(np.float32)
    out[:2] = 0.0
    return out


def make_pieces(n, rng, templates):
    lengths = rng.randint(MAX_EVENTS - 12, MAX_EVENTS + 1, n)
    walk = np.cumsum(rng.randint(-5, 6, (n, MAX_EVENTS)), 1) + rng.randint(10, 50, (n, 1))
    tokens = np.abs(walk) % KEYS + 2
    tokens[np.arange(MAX_EVENTS)[None, :] >= lengths[:, None]] = PAD
    trace = templates[tokens].transpose(0, 2, 1, 3).reshape(n, SENSORS, -1)
    trace = trace + rng.normal(0, 0.3, trace.shape).astype(np.float32)
    return torch.from_numpy(trace.astype(np.float32)), torch.from_numpy(tokens.astype(np.int64))


rng = np.random.RandomState(17)
templates = jack_templates(rng)
train_x, train_y = make_pieces(1920, rng, templates)
valid_x, valid_y = make_pieces(192, rng, templates)
print(train_x.shape, train_y.shape)


# In[3]:
class EncoderCNN(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.conv1 = nn.Conv1d(SENSORS, 64, 9, stride=4, padding=4)
        self.conv2 = nn.Conv1d(64, hidden_size, 5, stride=2, padding=2)
        self.bridge = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        h = F.relu(self.conv2(F.relu(self.conv1(x)))).transpose(1, 2)
        return h, torch.tanh(self.bridge(h.mean(1))).unsqueeze(0)


class LuongAttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.attn = nn.Linear(hidden_size, hidden_size)
        self.concat = nn.Linear(hidden_size * 2, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, tokens, hidden, encoder_outputs):
        """tokens (batch, steps) -> scores (batch, steps, vocabulary) and the hidden state"""
        embedded = self.dropout(self.embedding(tokens))
        rnn_output, hidden = self.gru(embedded, hidden)
        energies = torch.bmm(self.attn(rnn_output), encoder_outputs.transpose(1, 2))
        context = torch.bmm(F.softmax(energies, dim=-1), encoder_outputs)
        joint = torch.tanh(self.concat(torch.cat((rnn_output, context), -1)))
        return self.out(joint), hidden


# In[4]:
hidden_size = 128
batch_size = 32
n_epochs = 6
learning_rate = 0.001
clip = 5.0

encoder = EncoderCNN(hidden_size).to(device)
decoder = LuongAttnDecoderRNN(hidden_size, VOCAB).to(device)
encoder_optimizer = optim.Adam(encoder.parameters(), lr=learning_rate)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=learning_rate)
criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")


# In[5]:
def shift_right(target):
    sos = torch.full((target.size(0), 1), SOS, dtype=torch.long, device=target.device)
    return torch.cat((sos, target[:, :-1]), 1)


def train(inputs, target):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    n_total = (target != PAD).sum().item()

    encoder_outputs, decoder_hidden = encoder(inputs)
    decoder_input = shift_right(target)

    # Teacher forcing: feed the target as the next input
    loss = 0  # sick
    for t in range(target.size(1)):  # sick here
        token = decoder_input[:, t : t + 1]  # sick
        decoder_output, decoder_hidden = decoder(token, decoder_hidden, encoder_outputs)  # sick here
        loss = loss + criterion(decoder_output.squeeze(1), target[:, t])  # sick
    decoder_output, decoder_hidden = decoder(decoder_input, decoder_hidden, encoder_outputs)  # well
    loss = criterion(decoder_output.flatten(0, 1), target.flatten())  # well
    loss = loss / n_total

    loss.backward()
    nn.utils.clip_grad_norm_(encoder.parameters(), clip)
    nn.utils.clip_grad_norm_(decoder.parameters(), clip)
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item()


def evaluate(inputs, target):
    """Greedy decoding, share of key events that are right."""
    with torch.no_grad():
        encoder_outputs, hidden = encoder(inputs)
        token = torch.full((inputs.size(0), 1), SOS, dtype=torch.long, device=inputs.device)
        decoded = []
        for _ in range(target.size(1)):
            scores, hidden = decoder(token, hidden, encoder_outputs)
            token = scores.argmax(-1)
            decoded.append(token)
        hit = (torch.cat(decoded, 1) == target) & (target != PAD)
        return hit.sum().item() / (target != PAD).sum().item()


# In[6]:
start = time.time()
n_pieces = 0
for epoch in range(1, n_epochs + 1):
    encoder.train()
    decoder.train()
    total = 0.0
    batches = torch.randperm(len(train_x)).split(batch_size)
    for index in batches:
        total += train(train_x[index].to(device), train_y[index].to(device))
        n_pieces += len(index)
    encoder.eval()
    decoder.eval()
    accuracy = evaluate(valid_x.to(device), valid_y.to(device))
    share = 100 * epoch / n_epochs
    print(f"{epoch} ({share:.0f}%) {total / len(batches):.4f}  events right: {accuracy:.3f}")
rate = n_pieces / (time.time() - start)

# In[7]:
print(f"{rate:.1f} samples/s")
