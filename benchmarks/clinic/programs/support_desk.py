# /// clinic
# expect = ["PD06"]
# stratum = "twins"
# domain = "inference"
# smoke = true
# sizes = {WIDTH = [90, 130]}
# severities = {THREADS = [2, 4, 12]}
# ///
"""Routes support tickets: threads take tickets off a queue and ask the classifier."""

import queue
import threading
import time

import torch
from torch import nn

WIDTH = 110
THREADS = 4
TICKETS = 24000
LAYERS = 8


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(5000, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)) for _ in range(LAYERS))
        self.desk = nn.Linear(WIDTH, 12)

    def forward(self, tickets):
        hidden = self.words(tickets)
        for layer in self.layers:
            hidden = hidden + torch.relu(layer(hidden))
        return self.desk(hidden)


class Service:
    def __init__(self, model, workers, together):
        self.model = model.eval()
        self.inbox = queue.SimpleQueue()
        self.together = together
        self.answers = []
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(workers)]

    def take(self):
        tickets = [self.inbox.get()]
        while len(tickets) < self.together and tickets[-1] is not None:
            try:
                tickets.append(self.inbox.get_nowait())
            except queue.Empty:
                break
        return tickets

    @torch.inference_mode()
    def work(self):
        while True:
            tickets = self.take()
            asked = [ticket for ticket in tickets if ticket is not None]
            if asked:
                desks = self.model(torch.stack(asked)).argmax(1)  # here
                self.answers.extend(desks.tolist())
            if len(asked) < len(tickets):
                return

    def serve(self, tickets):
        for ticket in tickets:
            self.inbox.put(ticket)
        for _ in self.threads:
            self.inbox.put(None)
        began = time.perf_counter()
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        return len(tickets) / (time.perf_counter() - began)


def main():
    torch.manual_seed(4)
    tickets = list(torch.randint(0, 5000, (TICKETS, 20)))
    service = Service(Router(), workers=THREADS, together=1)  # sick
    service = Service(Router(), workers=1, together=32)  # well
    rate = service.serve(tickets)
    print(f"answered {len(service.answers)} tickets")
    print(f"{rate:.1f} tickets/s")


if __name__ == "__main__":
    main()
