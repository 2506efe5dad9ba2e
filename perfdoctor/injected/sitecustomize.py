"""Starts the probe in every Python process of an observed job, then hands over to the user's own sitecustomize.

This directory is put in front of PYTHONPATH by `perfdoctor check`; it takes itself off `sys.path` at once,
so the job sees the path it would have had.
"""

import sys


def _wake() -> None:
    ours = [__file__.rpartition("/")[0]]
    try:
        import _perfdoctor_probe

        # An engine may unpack the two into directories of their own.
        ours.append(_perfdoctor_probe.__file__.rpartition("/_perfdoctor_probe/")[0])
        _perfdoctor_probe.start()
    except Exception:  # the job comes first: a probe that cannot start is a job that is not observed
        pass
    sys.path[:] = [entry for entry in sys.path if entry not in ours]


_wake()
del sys.modules[__name__]
# Outside any guard of ours: what the user's sitecustomize raises is the user's to see. When there is none, the
# ModuleNotFoundError goes on to `site`, which expects it, and no module of this name stays behind.
import sitecustomize  # noqa: E402, F401
