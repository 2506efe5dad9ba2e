"""When devices worked in the operator window: kernels that overlap, on several streams, count once.

The sum of all kernels is no time of a device: two streams at once make it longer than the window. So the intervals of
each device's kernels are united, and those of all devices together, for a model that lies on several of them.
"""

_LAYOUT = ("nchwToNhwc", "nhwcToNchw")
"""In the names of cuDNN's kernels that turn tensors round for a convolution and back."""


def is_work(event) -> bool:
    """Not a range of the program's own, which the profiler draws on the device's timeline around its kernels."""
    annotates = getattr(event, "is_user_annotation", None)
    return annotates is None or not annotates()


def totals(events) -> "dict[str, int]":
    """Microseconds by what it was, added up: kernels (those that turn tensors round also apart), kinds of copies."""
    times: "dict[str, int]" = {}
    for event in events:
        name = event.name()
        kind = name if name.startswith("Mem") else "kernels"
        times[kind] = times.get(kind, 0) + event.duration_ns()
        if any(part in name for part in _LAYOUT):
            times["layout"] = times.get("layout", 0) + event.duration_ns()
    return {kind: total // 1000 for kind, total in times.items()}


def by_device(events) -> dict:
    """`busy_us`, with a kernel on any device, and a row for each device."""
    kernels: "dict[int, list]" = {}
    copies: "dict[int, list]" = {}
    streams: "dict[int, set]" = {}
    for event in events:
        index, start = event.device_index(), event.start_ns()
        some = copies if event.name().startswith("Mem") else kernels
        some.setdefault(index, []).append((start, start + event.duration_ns()))
        streams.setdefault(index, set()).add(event.device_resource_id())
    rows = []
    for index in sorted(streams):
        ran, copied = kernels.get(index, []), copies.get(index, [])
        rows.append(
            {
                "index": index,
                "streams": len(streams[index]),
                "kernels_us": sum(end - start for start, end in ran) // 1000,
                "busy_us": united_ns(ran) // 1000,
                "active_us": united_ns(ran + copied) // 1000,
            }
        )
    return {"busy_us": united_ns([one for ran in kernels.values() for one in ran]) // 1000, "devices": rows}


def united_ns(intervals: "list[tuple[int, int]]") -> int:
    """The length of what (start, end) cover together."""
    covered = 0
    reached = None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            covered += end - start
            reached = end
        elif end > reached:
            covered += end - reached
            reached = end
    return covered
