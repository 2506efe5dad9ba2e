"""How an observed job leaves once there is enough evidence."""

import os
import sys


class StopJob(SystemExit):
    """Raised at a step boundary. A `SystemExit`, so that an uncaught one ends the process without a traceback,
    and not an `Exception`, so that a training loop's own handlers let it pass.
    """


def engine() -> str:
    """The engine whose worker this process is, by its main script; "" for a process of the user's own.

    Such an engine takes a rank that leaves for one that failed: it tells so at length, and may start it again.
    """
    main = sys.modules.get("__main__")
    name = os.path.basename(getattr(main, "__file__", None) or "")
    if name == "default_worker.py" and "ray" in sys.modules:
        return "Ray"
    # What TorchDistributor makes of a function; whatever file it is given, it takes for one that ended well.
    pickled = getattr(getattr(main, "cloudpickle", None), "__name__", "")
    return "Spark" if name == "train.py" and pickled.startswith("pyspark.") else ""
