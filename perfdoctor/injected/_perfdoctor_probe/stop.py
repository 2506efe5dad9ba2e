"""How an observed job leaves once there is enough evidence."""

import os
import sys

VARIABLE = "PERFDOCTOR_ENGINE"
"""Set where an engine starts processes, and inherited by those."""


class StopJob(SystemExit):
    """Raised at a step boundary. A `SystemExit`, so that an uncaught one ends the process without a traceback,
    and not an `Exception`, so that a training loop's own handlers let it pass.
    """


def engine() -> str:
    """The engine whose worker this process is; "" for a process of the user's own.

    Such an engine takes a rank that leaves for one that failed, tells so at length, and may start it again; or for one
    that has trained to the end, and goes on with what it has learnt.
    """
    main = sys.modules.get("__main__")
    name = os.path.basename(getattr(main, "__file__", None) or "")
    if name == "default_worker.py" and "ray" in sys.modules:
        return "Ray"
    return os.environ.get(VARIABLE, "")
