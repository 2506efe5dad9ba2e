"""Workers that outlive an epoch."""

from torch.utils.data import DataLoader, IterableDataset

from .base import Remedy, UnsuitableError, living


class PersistentWorkers(Remedy):
    """The job's own loaders keep their iterator, with its workers, for the next epoch: the running one is the first.

    Workers learn only at an epoch's end whether they are to stay, from the iterator. Those of an iterable data set
    end one by one, each when its part is through, so they cannot be kept from the middle of an epoch on.
    """

    def apply(self) -> None:
        loading = self.probe.loading
        self.changed: "list[tuple]" = []
        running = {loading.running[iterator][0]: iterator for iterator in loading.drawn_from()}
        refused = "the loop draws no batches from a torch DataLoader"
        for loader in living((DataLoader,)):
            iterator = running.get(loading.ids.get(id(loader)))
            if iterator is None:
                continue
            refused = _obstacle(loader)
            if not refused:
                self.changed.append((loader, iterator))
                _set(loader, iterator, True)
        if not self.changed:
            raise UnsuitableError(refused)

    def withdraw(self) -> None:
        for loader, _ in getattr(self, "changed", ()):
            # A loader that was iterated anew has gone on with the same iterator.
            _set(loader, loader._iterator, False)
        self.changed = []


def _obstacle(loader) -> str:
    if not loader.num_workers:
        return "the loop's loader has no workers"
    if loader.persistent_workers:
        return "already set"
    if isinstance(loader.dataset, IterableDataset):
        return "workers of an iterable data set cannot be kept from the middle of an epoch on"
    return ""


def _set(loader, iterator, stay: bool) -> None:
    # DataLoader refuses to have this attribute set.
    loader.__dict__["persistent_workers"] = stay
    if iterator is not None:
        iterator._persistent_workers = stay
    loader._iterator = iterator if stay else None
