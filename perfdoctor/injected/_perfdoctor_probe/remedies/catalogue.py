"""What each remedy is, for those who choose among them: names and words only, no torch.

`perfdoctor` reads this outside the job; the probe finds in it the module and the class that do the work.
"""

from .. import records


class Entry:
    """One remedy."""

    __slots__ = (
        "argument",
        "environment",
        "gpu",
        "home",
        "keep",
        "kind",
        "language",
        "name",
        "numerics",
        "reversible",
        "risk",
        "text",
    )

    def __init__(
        self,
        name: str,
        text: str,
        keep: str,
        *,
        home: str = "",
        kind: str = "",
        argument: "int | None" = None,
        environment: "dict[str, str] | None" = None,
        language: str = "python",
        numerics: bool = False,
        reversible: bool = True,
        risk: int = 0,
        gpu: bool = False,
    ) -> None:
        """`home` and `kind`: module and class in this package; "" where no trial can make the change.

        `argument`: the number after `=` where none is given; None where there is no such number. `environment`:
        variables of a new launch, "" to unset one, instead of a change to the running job. `keep`: the lines that
        make it permanent, with `{value}` for the number. `risk`: 0 changes nothing but time and memory, 1 the order
        of data or of sums, 2 may break the job."""
        self.name = name
        self.text = text
        self.keep = keep
        self.home = home
        self.kind = kind
        self.argument = argument
        self.environment = environment
        self.language = language
        self.numerics = numerics
        self.reversible = reversible
        self.risk = risk
        self.gpu = gpu


ENTRIES = (
    Entry("nothing", "change nothing: what a trial of no remedy shows", "", home="base", kind="Nothing"),
    Entry(
        "gc.no-explicit",
        "`gc.collect()` does nothing",
        "# take gc.collect() out of the loop",
        home="collector",
        kind="NoExplicit",
    ),
    Entry(
        "gc.freeze",
        "`gc.freeze()`: the collector passes over all that exists by now",
        "gc.collect()\ngc.freeze()  # once, before the loop",
        home="collector",
        kind="Freeze",
    ),
    Entry(
        "gc.thresholds",
        "automatic collections a hundred times less often",
        "gc.set_threshold(50_000, 50, 100)  # before the loop",
        home="collector",
        kind="Thresholds",
    ),
    Entry(
        "memory.malloc",
        "glibc keeps freed memory instead of giving it back",
        "export MALLOC_MMAP_THRESHOLD_=4294967296\nexport MALLOC_TRIM_THRESHOLD_=8589934592\n"
        "export MALLOC_TOP_PAD_=268435456",
        home="memory",
        kind="Malloc",
        language="bash",
    ),
    Entry(
        "memory.empty-cache",
        "`torch.cuda.empty_cache()` does nothing",
        "# take torch.cuda.empty_cache() out of the loop",
        home="memory",
        kind="EmptyCache",
        gpu=True,
    ),
    Entry(
        "memory.cuda-alloc-conf",
        "segments of the CUDA allocator that can grow",
        "export PYTORCH_ALLOC_CONF=expandable_segments:True",
        environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        language="bash",
        gpu=True,
    ),
    Entry(
        "threads",
        "{value} intra-op threads",
        "torch.set_num_threads({value})",
        home="threads",
        kind="Threads",
        argument=1,
        numerics=True,
        risk=1,
    ),
    Entry(
        "threads.passive",
        "waiting OpenMP threads sleep instead of spin",
        "export OMP_WAIT_POLICY=PASSIVE",
        environment={"OMP_WAIT_POLICY": "PASSIVE"},
        language="bash",
    ),
    Entry(
        "isa.uncapped",
        "no cap on the CPU's instruction set",
        f"unset {' '.join(records.CAPS)}",
        environment=dict.fromkeys(records.CAPS, ""),
        language="bash",
        numerics=True,
        risk=1,
    ),
    Entry(
        "etl.replay",
        "the same few batches again and again: the most that faster loading can give",
        "",
        home="loaders",
        kind="Replay",
        numerics=True,
        risk=1,
    ),
    Entry(
        "etl.workers",
        "batches are made by workers, {value} of them",
        "DataLoader(dataset, ..., num_workers={value})  # with workers, also persistent_workers=True",
        home="loaders",
        kind="Workers",
        argument=2,
        risk=1,
    ),
    Entry(
        "etl.prefetch",
        "each worker works {value} batches ahead",
        "DataLoader(dataset, ..., prefetch_factor={value})",
        home="loaders",
        kind="Prefetch",
        argument=4,
        risk=1,
    ),
    Entry(
        "etl.pin-memory",
        "batches arrive in page-locked memory",
        "DataLoader(dataset, ..., pin_memory=True)",
        home="loaders",
        kind="PinMemory",
        risk=1,
        gpu=True,
    ),
    Entry(
        "batch.larger",
        "{value} times the batch; judged by the time per sample",
        "DataLoader(dataset, ..., batch_size={value} * batch_size)  # optimisation changes: see the fix",
        home="loaders",
        kind="Larger",
        argument=2,
        numerics=True,
        risk=2,
    ),
    Entry(
        "dtype.float32",
        "the model computes in float32",
        "model = model.float()  # and batches in float32",
        home="precision",
        kind="Float32",
        numerics=True,
        risk=2,
    ),
    Entry(
        "dtype.autocast",
        "the model runs under autocast to bfloat16",
        "with torch.autocast(device_type, torch.bfloat16):\n    loss = criterion(model(batch), target)",
        home="precision",
        kind="Autocast",
        numerics=True,
        risk=2,
    ),
    Entry(
        "layout.channels-last",
        "images lie in memory with their channels last",
        "model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)  # each batch",
        home="precision",
        kind="ChannelsLast",
        numerics=True,
        risk=2,
    ),
    Entry(
        "dtype.tf32",
        "products of float32 matrices use TF32",
        'torch.set_float32_matmul_precision("high")',
        home="libraries",
        kind="Tf32",
        numerics=True,
        risk=1,
        gpu=True,
    ),
    Entry(
        "onednn.on",
        "oneDNN is on, whatever switches it off",
        "torch.backends.mkldnn.set_flags(True)  # and name `enabled=True` in every mkldnn.flags()",
        home="libraries",
        kind="OneDnnOn",
        numerics=True,
        risk=1,
    ),
    Entry(
        "cudnn.on",
        "cuDNN is on, whatever switches it off",
        "torch.backends.cudnn.enabled = True",
        home="libraries",
        kind="CudnnOn",
        numerics=True,
        risk=1,
        gpu=True,
    ),
    Entry(
        "cudnn.benchmark",
        "cuDNN measures its algorithms and takes the fastest",
        "torch.backends.cudnn.benchmark = True",
        home="libraries",
        kind="CudnnBenchmark",
        numerics=True,
        risk=1,
        gpu=True,
    ),
    Entry(
        "optimizer.fused",
        "the optimizer updates all parameters in one fused operator",
        "torch.optim.AdamW(model.parameters(), ..., fused=True)",
        home="optimizers",
        kind="Fused",
        numerics=True,
        risk=1,
    ),
    Entry(
        "optimizer.foreach",
        "the optimizer updates parameters in groups",
        "torch.optim.AdamW(model.parameters(), ..., foreach=True)",
        home="optimizers",
        kind="Foreach",
        numerics=True,
        risk=1,
    ),
    Entry(
        "etl.persistent-workers",
        "workers live on from one epoch to the next",
        "DataLoader(dataset, ..., persistent_workers=True)",
    ),
    Entry(
        "attention.sdpa",
        "attention by one fused operator",
        "torch.nn.functional.scaled_dot_product_attention(query, key, value)",
        numerics=True,
    ),
    Entry(
        "debug.off",
        "anomaly detection of autograd is off",
        "torch.autograd.set_detect_anomaly(False)",
        home="debugging",
        kind="NoAnomalyDetection",
    ),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}


class UnknownRemedyError(ValueError):
    """No remedy has this name, or the number after `=` is none."""


def parse(name: str) -> "tuple[Entry, int | None]":
    """`threads=2` as its entry and its number. Raises UnknownRemedyError."""
    base, equals, text = name.partition("=")
    entry = BY_NAME.get(base)
    if entry is None:
        raise UnknownRemedyError(name)
    if not equals:
        return entry, entry.argument
    if entry.argument is None or not text.isdecimal():
        raise UnknownRemedyError(name)
    return entry, int(text)


def described(name: str) -> str:
    """What `name` does, with its number."""
    entry, value = parse(name)
    return entry.text.replace("{value}", str(value))


def kept(name: str) -> str:
    """The lines that make `name` permanent; "" where there are none."""
    entry, value = parse(name)
    return entry.keep.replace("{value}", str(value))
