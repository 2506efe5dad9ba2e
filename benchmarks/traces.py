"""Traces recorded on real GPUs, against what others measured of them: python -m benchmarks.traces [FOLDER]

The folder holds public traces of torch.profiler, by the names with which they were published, and is no part of this
repository. Figures are per cent of the window: the device idle, the host in a DataLoader, that with the device idle,
communication, and that which nothing hides.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.evidence.model import Evidence, Idle, Missing
from perfdoctor.evidence.traced.build import build
from perfdoctor.traces.reader import read

FOLDER = Path(__file__).parent.parent.parent / "shared" / "traces"


@dataclass(frozen=True)
class Known:
    """What is known of one trace: window in ms, and shares of it in per cent."""

    window_ms: float
    idle: float
    loading: float
    loading_idle: float
    communication: float
    exposed: float


KNOWN = {
    "01": Known(1065.6, 43.4, 39.0, 33.4, 0.0, 0.0),
    "02": Known(846.5, 27.4, 1.0, 0.8, 0.0, 0.0),
    "05": Known(1737.9, 42.4, 0.0, 0.0, 20.6, 20.6),
    "06": Known(465.2, 16.5, 0.1, 0.1, 35.2, 18.9),
    "09": Known(3391.3, 89.4, 0.0, 0.0, 0.0, 0.0),
    "10": Known(86.6, 3.0, 0.0, 0.0, 82.6, 64.2),
    "15": Known(84.5, 86.3, 0.0, 0.0, 2.5, 2.5),
}
"""By the number that a file's name begins with."""
RANKS = "03"
WINDOWS_MS, LOADING, EXPOSED = (12.5, 19.9), (5.5, 9.9), (12.6, 55.6)
"""Of eight ranks, the least and the most."""
OFF = 0.01
"""Of a figure, relative; figures are rounded to a tenth."""
ROUNDED = 0.05


def measured(evidence: Evidence) -> Known:
    """The same figures by perfdoctor."""
    seen, step = evidence.activity, evidence.step
    if isinstance(seen, Missing) or isinstance(step, Missing):
        raise SystemExit(f"no device was seen: {seen}")
    idle, talk = seen.idle_by(Idle.INPUT), seen.collectives
    shares = (
        seen.idle_ms,
        seen.input_ms,
        idle.ms if idle is not None else 0.0,
        talk.ms if talk is not None else 0.0,
        talk.exposed_ms if talk is not None else 0.0,
    )
    return Known(seen.window_ms, *(100 * ms / seen.step_ms for ms in shares))


def agrees(found: float, known: float) -> bool:
    """Within a per cent, or what rounding hides."""
    return abs(found - known) <= max(OFF * abs(known), ROUNDED)


def ranks(archive: Path) -> list[Known]:
    """Of a set of ranks in one archive."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
        traces = [read(path) for path in sorted(Path(folder).rglob("*.json"))]
    return [measured(rank) for rank in build(traces).ranks]


def main(folder: Path) -> int:
    """Prints the table; 1 where a figure is off."""
    wrong = 0
    print(f"{'trace':8}{'window ms':>12}{'idle':>8}{'loading':>9}{'and idle':>10}{'communication':>15}{'exposed':>9}")
    for path in sorted(folder.glob("*.json.gz")):
        number = path.name[:2]
        (rank,) = build([read(path)]).ranks
        found, known = measured(rank), KNOWN.get(number)
        cells = []
        for name in Known.__dataclass_fields__:
            value = getattr(found, name)
            good = known is None or agrees(value, getattr(known, name))
            wrong += not good
            cells.append(f"{value:.1f}{' ' if good else '!'}")
        print(f"{number:8}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, (12, 8, 9, 10, 15, 9), strict=True)))
    for archive in sorted(folder.glob(f"{RANKS}*.tar.gz")):
        found_ranks = ranks(archive)
        for name, (least, most) in {"window_ms": WINDOWS_MS, "loading": LOADING, "exposed": EXPOSED}.items():
            values = [getattr(one, name) for one in found_ranks]
            good = agrees(min(values), least) and agrees(max(values), most)
            wrong += not good
            span = f"{min(values):.1f} to {max(values):.1f}{'' if good else '!'}"
            print(f"{RANKS:8}{name}: {span}, of {len(values)} ranks")
    print("all figures agree within 1 %" if not wrong else f"{wrong} figures are off (!)")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
