"""Handlers of loggers that write the same to the same place, for each record once more: added again and again."""

import sys


def alike(earlier: "dict[tuple, int]", lines) -> "list[dict]":
    """Of all loggers, those handlers of which there are several. `earlier`: how many there were at the last census, by
    logger and place; kept for the next one."""
    logging = sys.modules.get("logging")
    if logging is None:
        return []
    known = [logging.root, *list(logging.Logger.manager.loggerDict.values())]
    found, counts = [], {}
    for logger in known:
        for place in filter(None, map(_place, list(getattr(logger, "handlers", ())))):
            counts[logger.name, place] = counts.get((logger.name, place), 0) + 1
    several = {key: times for key, times in counts.items() if times > 1}
    site = lines.called("addHandler") if several else -1
    for (name, place), times in several.items():
        grows = times > earlier.get((name, place), times)
        found.append({"logger": name, "kind": place[0], "times": times, "grows": grows, "site": site})
    earlier.clear()
    earlier.update(counts)
    return sorted(found, key=lambda one: -one["times"])


def _place(handler) -> "tuple | None":
    """Where it writes: a file or a stream; None where that is not known."""
    target = getattr(handler, "baseFilename", None) or getattr(handler, "stream", None)
    if target is None:
        return None
    return type(handler).__name__, target if isinstance(target, str) else id(target), handler.level
