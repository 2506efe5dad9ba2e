# /// clinic
# expect = ["PD15.growing-hooks"]
# stratum = "twins"
# domain = "policy gradients, a game"
# ///
"""REINFORCE with a learned baseline on a batch of small catch games."""

import time
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

GAMES = 256
ROWS, COLUMNS = 16, 11
UPDATES = 1000
REPORT_EVERY = 100
GAMMA = 0.97
ENTROPY = 0.01


class CatchGames:
    """A ball drifts down a field; the paddle on the last row has to be under it."""

    def __init__(self, games):
        self.games = games
        self.index = torch.arange(games)
        self.reset()

    def reset(self):
        self.row = 0
        self.ball = torch.randint(COLUMNS, (self.games,))
        self.drift = torch.randint(-1, 2, (self.games,))
        self.paddle = torch.full((self.games,), COLUMNS // 2)
        return self.observe()

    def observe(self):
        field = torch.zeros(self.games, ROWS + 1, COLUMNS)
        field[self.index, self.row, self.ball] = 1.0
        field[self.index, ROWS, self.paddle] = 1.0
        return torch.cat([field.flatten(1), self.drift[:, None].float()], 1)

    def step(self, action):
        self.paddle = (self.paddle + action - 1).clamp(0, COLUMNS - 1)
        self.row += 1
        self.ball = self.ball + self.drift
        bounced = (self.ball < 0) | (self.ball >= COLUMNS)
        self.drift = torch.where(bounced, -self.drift, self.drift)
        self.ball = self.ball.clamp(0, COLUMNS - 1)
        done = self.row == ROWS - 1
        reward = torch.where(self.ball == self.paddle, 1.0, -1.0) if done else torch.zeros(self.games)
        return self.observe(), reward, done


class ActorCritic(nn.Module):
    def __init__(self, inputs, width=128, actions=3):
        super().__init__()
        self.fc1 = nn.Linear(inputs, width)
        self.act1 = nn.ReLU()
        self.fc2 = nn.Linear(width, width)
        self.act2 = nn.ReLU()
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)

    def forward(self, x):
        x = self.act1(self.fc1(x))
        x = self.act2(self.fc2(x))
        return self.policy(x), self.value(x).squeeze(-1)


@torch.no_grad()
def play(model, games):
    """One episode in all games at once."""
    observations, actions, rewards = [], [], []
    observation, done = games.reset(), False
    while not done:
        logits, _ = model(observation)
        action = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        observations.append(observation)
        actions.append(action)
        observation, reward, done = games.step(action)
        rewards.append(reward)
    return torch.stack(observations), torch.stack(actions), torch.stack(rewards)


def discounted(rewards):
    returns = torch.empty_like(rewards)
    running = torch.zeros(rewards.shape[1])
    for t in range(len(rewards) - 1, -1, -1):
        running = rewards[t] + GAMMA * running
        returns[t] = running
    return returns


class ActivationReport:
    """Share of silent units and the mean activation of each nonlinearity on the probe positions."""

    def __init__(self, model, probe):
        self.model, self.probe = model, probe

    def watch(self, name, layer, found):
        def record(module, inputs, output):
            silent = (output <= 0).float().mean(0)
            found[name] = ((silent > 0.99).float().mean().item(), output.mean().item())

        return layer.register_forward_hook(record)

    @torch.no_grad()
    def __call__(self):
        found = {}
        layers = [(n, m) for n, m in self.model.named_modules() if isinstance(m, nn.ReLU)]
        for name, layer in layers:  # sick
            self.watch(name, layer, found)  # sick here
        handles = [self.watch(name, layer, found) for name, layer in layers]  # well
        self.model(self.probe)
        for handle in handles:  # well
            handle.remove()  # well
        return ", ".join(f"{name}: {silent:.0%} silent, mean {mean:.3f}" for name, (silent, mean) in found.items())


def main():
    torch.manual_seed(2)
    games = CatchGames(GAMES)
    model = ActorCritic((ROWS + 1) * COLUMNS + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4, fused=True)
    with torch.random.fork_rng():
        probe = play(model, games)[0].flatten(0, 1)[::8]
    report = ActivationReport(model, probe)
    recent = deque(maxlen=50)

    start = None
    for update in range(1, UPDATES + 1):
        observations, actions, rewards = play(model, games)
        returns = discounted(rewards)
        logits, values = model(observations)
        log_probs = logits.log_softmax(-1)
        chosen = log_probs.gather(-1, actions[..., None]).squeeze(-1)
        advantage = returns - values.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(values, returns) - ENTROPY * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        recent.append(rewards[-1].mean().item())
        if update == 5:
            start = time.perf_counter()
        if update % REPORT_EVERY == 0:
            score = sum(recent) / len(recent)
            print(f"update {update}: score {score:+.3f}, entropy {entropy.item():.3f} | {report()}", flush=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "paddle.pt")
    print(f"{(UPDATES - 5) / (time.perf_counter() - start):.3f} steps/s")


if __name__ == "__main__":
    main()
