"""When devices worked in the operator window: kernels that overlap, on several streams, count once.

The sum of all kernels is no time of a device: two streams at once make it longer than the window. So the intervals of
each device's kernels are united, and those of all devices together, for a model that lies on several of them.
"""

from ..rows import milliseconds

_LAYOUT = ("nchwToNhwc", "nhwcToNchw")
"""In the names of cuDNN's kernels that turn tensors round for a convolution and back."""


def is_work(event) -> bool:
    """Not a range of the program's own, which the profiler draws on the device's timeline around its kernels."""
    annotates = getattr(event, "is_user_annotation", None)
    return annotates is None or not annotates()


def layout_ns(events) -> int:
    """In kernels that turn tensors round for a convolution and back."""
    return sum(event.duration_ns() for event in events if any(part in event.name() for part in _LAYOUT))


def summary(events, steps: int) -> dict:
    """Copies to the device, time with a kernel on any device, and a row for each device; per step."""
    kernels: "dict[int, list]" = {}
    copies = pageable = 0
    for event in events:
        name, index, start = event.name(), event.device_index(), event.start_ns()
        if not name.startswith("Mem"):
            kernels.setdefault(index, []).append((start, start + event.duration_ns()))
        elif "HtoD" in name:
            copies += event.duration_ns()
            pageable += event.duration_ns() if "Pageable" in name else 0
    return {
        "device_copies_ms": milliseconds(copies, steps),
        "pageable_copies_ms": milliseconds(pageable, steps),
        "device_busy_ms": milliseconds(united_ns([one for ran in kernels.values() for one in ran]), steps),
        "devices": [
            {"index": index, "busy_ms": milliseconds(united_ns(ran), steps)} for index, ran in sorted(kernels.items())
        ],
    }


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
