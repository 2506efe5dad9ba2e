"""What a loop says while it trains: prints, log records, progress bars and trackers, timed by the line that asks.

A library is looked for among the loaded modules at a step's boundary, and changed only once it is there.
"""

import sys

from ..changes import Changes
from ..timeline import LOGGING

_ADDED = (
    "add_audio add_custom_scalars add_embedding add_figure add_graph add_histogram add_histogram_raw add_hparams "
    "add_image add_image_with_boxes add_images add_mesh add_pr_curve add_scalar add_scalars add_text add_video"
).split()
_TRACKED = "log_artifact log_dict log_figure log_image log_metric log_metrics log_param log_params log_table".split()

PLACES = (
    ("builtins", "", ("print",)),
    # Not what makes the record: that looks up the stack for the line that logs.
    ("logging", "Logger", ("handle",)),
    ("tqdm.std", "tqdm", ("refresh",)),
    ("torch.utils.tensorboard.writer", "SummaryWriter", _ADDED),
    ("tensorboardX.writer", "SummaryWriter", _ADDED),
    ("wandb.sdk.wandb_run", "Run", ("log",)),
    # `wandb.init` binds the run's method to the module's name, mostly before it is looked for.
    ("wandb", "", ("log",)),
    ("mlflow", "", _TRACKED),
)
"""Module, class and functions that show or store something."""

_NAMES = {"handle": "logging", "refresh": "the progress bar", "log": "wandb.log"}
"""What a report calls those whose own names say little."""


class Loggers:
    """Those found so far."""

    def __init__(self, calls) -> None:
        self.calls = calls
        self.changes = Changes()
        self.wanted = list(PLACES)

    def look(self) -> None:
        """Time what was imported since the last look."""
        modules = sys.modules
        for place in [place for place in self.wanted if place[0] in modules]:
            module, owner, names = place
            holder = getattr(modules[module], owner, None) if owner else modules[module]
            if holder is None:  # another thread is importing it
                continue
            self.wanted.remove(place)
            for name in names:
                original = vars(holder).get(name)
                if original is not None:
                    kind = "log:" + _NAMES.get(name, name)
                    self.changes.put(holder, name, self.calls.wrap(kind, original, LOGGING, in_loop=True))

    def forget(self) -> None:
        """Nothing is timed any more: what calls it may be compiled, and nothing of ours may be traced."""
        self.wanted = []
        self.changes.take_back()
