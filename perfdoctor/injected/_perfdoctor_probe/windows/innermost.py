"""What windows have in common that enter a dispatch mode at one step boundary and leave it at another."""

import torch


class InnermostMode:
    """A window whose mode is the innermost one as it is left, so that leaving it leaves no other."""

    watch = None
    """The mode, while it is on."""
    inference = False
    """Whether it was entered inside inference mode."""

    def enter(self, watch) -> None:
        """Enter this mode."""
        self.inference = torch.is_inference_mode_enabled()
        self.watch = watch
        watch.__enter__()

    def closable(self) -> bool:
        """Whether it is the innermost mode, and inside inference mode only if entered there: leaving inference mode
        restores the dispatch keys as it found them, ours among them."""
        length = torch._C._len_torch_dispatch_stack()
        return (
            length > 0
            and torch._C._get_dispatch_stack_at(length - 1) is self.watch
            and torch.is_inference_mode_enabled() == self.inference
        )

    def is_gone(self) -> bool:
        """Whether our mode has ended with its thread, whose number this one has got."""
        return self.watch is not None and torch._C._len_torch_dispatch_stack() == 0


def obstacle(compiled: bool) -> str:
    """Why no operator of this job can be listened to by a mode now, or ""."""
    if compiled:
        return "the job uses torch.compile, which leaves code uncompiled while a dispatch mode is active"
    if torch._C._len_torch_dispatch_stack():
        return "the job has a dispatch mode of its own around its steps"
    return ""
