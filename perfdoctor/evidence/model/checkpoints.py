"""Checkpoints that the loop waits for."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Site
from ...recording.process import Saved


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What saving costs the loop, over all steps after the warm-up. A step that ends between two calls has both."""

    saves: int
    """Steps that saved."""
    steps: int
    """All steps."""
    every: float
    """Steps from one that saves to the next, mean; all steps where fewer than two did."""
    save_ms: float
    """Of a step that saves, in `torch.save` and its like, and in what is done with a checkpoint then."""
    most_ms: float
    """By which it is longer than a steady step, at least `save_ms`: what prepares a checkpoint is in it, and what a
    trainer writes by itself. Steps that start an epoch are left out where there are others."""
    is_steady: bool
    """So often that the steady step has them as a part."""
    site: Site | None = None
    """The line that saves longest; None where no line of the job was on the stack."""
    bytes: int = 0
    """Written by one call of it; 0 where that is not known."""
    calls_per_save: float = 1.0
    contents: Saved | None = None
    """Of one of its first checkpoints."""
    early_bytes: int = 0
    """Written by one of the first calls of a line that writes more each time; 0 where none does."""
    late_bytes: int = 0
    """Written by one of its last."""
    fsyncs_per_save: float = 0.0
    fsync_ms: float = 0.0
    """Of a step that saves, in `os.fsync`."""

    beside_ms: float = 0.0
    """Of a step that saves, in compressing a checkpoint that lies in memory, and in reading it again."""
    beside_at: Site | None = None
    """The line that does so longest."""
    copy_ms: float = 0.0
    """Of a step that saves, in copies from a device to the host, with the wait for what the device has yet to do."""
    copy_bytes: int = 0
    """Copied by them."""
    late_saves: int | None = None
    """Of `saves`, in the later half of the steps, where these are so few that chance hardly explains it: as of a job
    that saves what is better than all before. None where saving goes on as it began."""

    @property
    def grows(self) -> bool:
        return self.late_bytes > self.early_bytes > 0

    @property
    def is_mostly_beside(self) -> bool:
        """Whether it is not the saving that takes longest."""
        return 2 * self.beside_ms >= self.save_ms > 0

    @property
    def ms_per_step(self) -> float:
        return self.save_ms / self.every

    @property
    def most_ms_per_step(self) -> float:
        return self.most_ms / self.every

    @property
    def stage_ms(self) -> float | None:
        """Copying what one step saves into memory, by the rate that was timed here and the copies from a device; None
        where neither was seen."""
        held = self.contents
        if held is None or (not held.copied_us and not self.copy_ms):
            return None
        on_host = self.calls_per_save * (held.storage_bytes - held.device_bytes)
        rate = held.copied_bytes / held.copied_us if held.copied_us else 0.0
        return self.copy_ms + (on_host / rate / 1000 if rate else 0.0)

    @property
    def waiting_share(self) -> float:
        """Of a save, that its thread waited in, for a disk or a device; 0 where that is not known."""
        held = self.contents
        return 0.0 if held is None or not held.us else max(0.0, 1 - held.cpu_us / held.us)
