"""The probe: wakes in every Python process of the job, stays inert until the job itself imports torch.

Two rules shape every file here. Before torch is imported, only modules that the bare interpreter has loaded
may be used, because an early `import queue` would shadow a user's own `queue.py`; `process`, `recorder`,
`records` and `torch_import` keep to that. Afterwards only what torch itself imported may be used. And a hook
that fails is switched off, noted in the recording, and never seen by the job.
"""


def start() -> None:
    """Called by sitecustomize; does nothing unless `perfdoctor check` started this job, nor where another copy of us,
    which an engine has shipped, was faster.
    """
    import os
    import sys

    if "PERFDOCTOR_RUN" in os.environ and f"{__name__}.process" not in sys.modules:
        from . import process

        process.enter(os.environ["PERFDOCTOR_RUN"])
