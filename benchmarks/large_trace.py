"""How long a large trace takes to read, and how much memory.

    python benchmarks/large_trace.py --mb 2000 [--gzip] [--keep FILE]

Target: 2 GB of text within 90 s and 1.5 GB of memory on two cores. The trace is written by a generator: steps of a
training job with stacks and shapes, as torch.profiler writes them, every eleventh event launches a kernel.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

OPERATORS = ("aten::linear", "aten::addmm", "aten::native_layer_norm", "aten::gelu", "aten::add", "aten::mul")
LAYERS = 48
PER_STEP = 600
"""Operators in one step."""

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85031714816,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "record_shapes": 1, "with_stack": 1,
  "traceEvents": [
"""
TAIL = """  ],
  "traceName": "large.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1767189312000000000
}
"""
OPERATOR = """  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4242, "tid": 4242,
    "ts": {start:.3f}, "dur": 48.250,
    "args": {{
      "External id": {number},"Record function id": 0, "Sequence number": {number}, "Fwd thread id": 0, \
"Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], \
"Input Strides": [[1], [{width}, 1], [1, {width}], [], []], "Input Dims": [[{width}], [{rows}, {width}], \
[{width}, {width}], [], []], "Ev Idx": {number}
    }}
  }},
"""
FUNCTION = """  {{
    "ph": "X", "cat": "python_function", "name": "{name}", "pid": 4242, "tid": 4242,
    "ts": {start:.3f}, "dur": {length},
    "args": {{
      "Python parent id": {number}, "Python id": {number}, "Ev Idx": {number}
    }}
  }},
"""
LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242,
    "ts": {start:.3f}, "dur": 5.125,
    "args": {{
      "External id": {number}, "cbid": 211, "correlation": {number}
    }}
  }},
  {{
    "ph": "s", "id": {number}, "pid": 4242, "tid": 4242, "ts": {start:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,
    "ts": {begun:.3f}, "dur": 40.736,
    "args": {{
      "External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, \
"registers per thread": 56, "shared memory": 49152, "blocks per SM": 3.03, "warps per SM": 24.2, \
"grid": [{rows}, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 38
    }}
  }},
  {{
    "ph": "f", "id": {number}, "pid": 0, "tid": 7, "ts": {begun:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
"""
STEP = """  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 4242, "tid": 4242,
    "ts": {start:.3f}, "dur": {length:.3f},
    "args": {{
      "External id": {number}
    }}
  }},
"""
LAST = """  {{
    "ph": "X", "cat": "Trace", "ts": {start:.3f}, "dur": {length:.3f},
    "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)",
    "args": {{
      "Op count": 0
    }}
  }}
"""
EACH_US = 60.0
READ = """
import resource, sys, time
from pathlib import Path
from perfdoctor.traces.reader import read
before = time.monotonic()
trace = read(Path(sys.argv[1]))
seconds = time.monotonic() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
rows = {table: len(getattr(trace, table)) for table in ("operators", "calls", "work", "marks", "frames")}
print(f"{seconds:.1f} s, {peak:.0f} MiB at most; {rows}, {len(trace.names)} names")
"""


def text(size: int) -> Iterator[str]:
    """A trace of about so many bytes, a step at a time."""
    chance = random.Random(0)
    start = begun = first = 3_743_411_222_487.063
    number = step = written = 0
    yield HEAD
    while written < size:
        step += 1
        length = PER_STEP * EACH_US
        events = [STEP.format(step=step, start=start, length=length, number=number)]
        for _ in range(PER_STEP):
            number += 1
            values = {"number": number, "rows": chance.choice((64, 128, 4096)), "width": 256 * chance.randrange(1, 9)}
            layer = chance.randrange(LAYERS)
            for depth in range(7):
                name = (
                    f"torch/nn/modules/module.py({1500 + depth}): _call_impl"
                    if depth % 2
                    else f"nn.Module: Block_{layer}"
                )
                events.append(FUNCTION.format(name=name, start=start + depth, length=f"{55 - 2 * depth}.500", **values))
            address = f"<built-in method gelu of type object at 0x7f{chance.randrange(1 << 40):010x}>"
            events.append(FUNCTION.format(name=address, start=start + 7, length="41.000", **values))
            events.append(OPERATOR.format(name=chance.choice(OPERATORS), start=start + 8, **values))
            begun = max(begun, start + 20)
            kernel = f"void at::native::vectorized_elementwise_kernel<4, Functor_{layer}>(int, Functor_{layer})"
            events.append(LAUNCH.format(name=kernel, start=start + 10, begun=begun, **values))
            begun += 42
            start += EACH_US
        block = "".join(events)
        written += len(block)
        yield block
    yield LAST.format(start=first - 10, length=begun - first + 100)
    yield TAIL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200, help="megabytes of text")
    parser.add_argument("--gzip", action="store_true", help="compress it")
    parser.add_argument("--keep", type=Path, help="write the trace there, and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = options.keep or Path(place, "large.json" + ".gz" * options.gzip)
        with gzip.open(path, "wt", compresslevel=1) if options.gzip else path.open("w") as file:
            for block in text(options.mb * 1_000_000):
                file.write(block)
        print(f"{path.stat().st_size / 1e6:.0f} MB on disk: ", end="", flush=True)
        subprocess.run([sys.executable, "-c", READ, str(path)], check=True)


if __name__ == "__main__":
    main()
