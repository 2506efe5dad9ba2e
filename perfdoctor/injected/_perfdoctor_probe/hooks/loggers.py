"""What a loop says while it trains: prints, log records, progress bars and trackers, timed by the line that asks; and
what a trainer collects in evaluations, or looks at for an error.

A library is looked for among the loaded modules at a step's boundary, and changed only once it is there.
"""

import sys

from ..changes import Changes
from ..timeline import LOGGING
from . import collected

_ADDED = (
    "add_audio add_custom_scalars add_embedding add_figure add_graph add_histogram add_histogram_raw add_hparams "
    "add_image add_image_with_boxes add_images add_mesh add_pr_curve add_scalar add_scalars add_tensor add_text "
    "add_video flush"
).split()
_TRACKED = (
    "log_artifact log_artifacts log_dict log_figure log_image log_metric log_metrics log_param log_params log_table "
    "log_text"
).split()

PLACES = (
    ("builtins", "", ("print",)),
    # Not what makes the record: that looks up the stack for the line that logs.
    ("logging", "Logger", ("handle",)),
    ("tqdm.std", "tqdm", ("refresh",)),
    ("torch.utils.tensorboard.writer", "SummaryWriter", _ADDED),
    ("tensorboardX.writer", "SummaryWriter", _ADDED),
    # A figure is drawn when it is saved, which takes most of the time.
    ("matplotlib.figure", "Figure", ("savefig",)),
    ("PIL.Image", "Image", ("save",)),
    ("wandb.sdk.wandb_run", "Run", ("log", "log_artifact")),
    # `wandb.init` binds the run's method to the module's name, mostly before it is looked for.
    ("wandb", "", ("log",)),
    # Made before they are logged, which takes most of the time: a tensor is copied and sorted, or compressed.
    ("wandb.sdk.data_types.histogram", "Histogram", ("__init__",)),
    ("wandb.sdk.data_types.image", "Image", ("__init__",)),
    # Of `wandb.watch`, inside the backward pass.
    ("wandb.integration.torch.wandb_torch", "TorchHistory", ("log_tensor_stats",)),
    ("lightning.pytorch.core.module", "LightningModule", ("log", "log_dict")),
    ("pytorch_lightning.core.module", "LightningModule", ("log", "log_dict")),
    ("mlflow", "", _TRACKED),
    # Lightning's logger calls it, and who keeps several runs.
    ("mlflow.tracking.client", "MlflowClient", (*_TRACKED, "log_batch")),
)
"""Module, class and functions that show or store something."""

_NAMES = {
    "handle": "logging",
    "refresh": "the progress bar",
    "log": "wandb.log",
    "LightningModule.log": "self.log",
    "LightningModule.log_dict": "self.log_dict",
    "flush": "SummaryWriter.flush",
    "savefig": "Figure.savefig",
    "save": "Image.save",
    "Histogram": "wandb.Histogram",
    "Image": "wandb.Image",
    "log_tensor_stats": "wandb.watch",
}
"""What a report calls those whose own names say little; one that is made, by its class."""

_SEARCHED = "transformers.debug_utils", "DebugUnderflowOverflow", ("create_frame",)
"""Of `TrainingArguments(debug="underflow_overflow")`: its hooks are there by now, and call this one."""
_OTHERS = (collected.PLACE, _SEARCHED)
_KINDS = {collected.PLACE[0]: collected.KIND, _SEARCHED[0]: "debug.frame"}
"""Of calls that are timed and are no logging, by module."""


class Loggers:
    """Those found so far."""

    def __init__(self, calls) -> None:
        self.calls = calls
        self.changes = Changes()
        self.wanted = [*PLACES, *_OTHERS]

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
                if original is None:
                    continue
                if module in _KINDS:
                    timed = self.calls.wrap(_KINDS[module], original)
                else:
                    called = owner if name == "__init__" else name
                    kind = "log:" + _NAMES.get(f"{owner}.{name}", _NAMES.get(called, called))
                    timed = self.calls.wrap(kind, original, LOGGING, self.calls.began_in_loop)
                self.changes.put(holder, name, timed)

    def forget(self) -> None:
        """Nothing is timed any more: what calls it may be compiled, and nothing of ours may be traced."""
        self.wanted = []
        self.changes.take_back()
