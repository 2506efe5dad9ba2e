"""The format of a recording: what the probe writes and the reader reads. Plain constants and functions only.

One JSON object per line; `k` names its kind. What the fields of a kind mean is declared in `perfdoctor.recording`, in
types with the very same names. A column is a list, or one number when all its `n` entries are the same. Times are
nanoseconds of CLOCK_MONOTONIC (one clock for all processes of a machine), durations as the names say.

    process   first line of a file: who this process is
    torch     torch was imported (or could not be: `error`)
    worker    this process is a data-loader worker
    settings  torch's settings at the second step boundary
    loader    a DataLoader was made
    iter      an iterator of a loader was started
    steps     columns, one entry per step
    device    columns, one entry per step marked on the CUDA device's timeline
    batches   columns, one entry per batch that the training thread received
    batch     what a batch of a loader holds, for its first few
    of_samples  what steps computed of their samples alone, if what it was made of is still the same after the last step
    shapes    batches whose shape was looked at and distinct ones among them, so far; on CUDA only
    fetches   columns, one entry per batch made in this process
    making    the lines of one batch that a data-loader worker made
    later_making  the same of a later batch, where they take longer
    gc        collections since the last such record, by generation
    full_gc   one generation-2 collection, or any explicit one
    site      a place in the user's code, referred to by `id`
    evaluations  columns, one entry per step that held forwards without training
    held_out  a line that evaluates so on a tensor of earlier steps
    evaluated  a line that leads to many passes in evaluation mode, without a loader
    started   a process that the job starts, by pid and line
    decoded   forwards of one step that each were given one token more than the one before
    eval_with_grad  forwards in evaluation mode whose graph nobody used, since the last such record
    concurrency  root forwards since the last such record, once more than one thread makes them
    batching  a round of the operators of one forward: for one request and several at once, and by intra-op threads
    call      calls of a wrapped function since the last such record, by site
    ddp       how DistributedDataParallel reduces gradients
    division  how the work is divided among ranks
    saved     what a checkpoint holds, for the first of each line
    compiled  Dynamo compiled something
    profiler  a profiler of the job's starts or ends
    profiler_timing  what it costs an operator, timed after the last step
    sample    counters of this process
    worker_sample  counters of a data-loader worker
    boundary  from here on a step ends at `kind`: optimizer, batch, forward or backward
    window    a window closed: what it saw
    cycle     the loop does the same again every so many steps
    growth    containers and graphs that have grown from census to census, by name
    phase     the job trains by other lines than before, and whether for longer: what is judged then; or the first
    planned   how many steps the loop is going to take, of one whose steps get longer, or that perfdoctor ends
    timings   the largest operators timed otherwise after the last step: completes the operator window
    threads   a round of the largest operators, timed with several numbers of intra-op threads
    tracked   the job's own run of an experiment tracker, where a note to it was asked for
    fault     a hook raised and was switched off
    ray       of a worker of Ray: the training that it belongs to; of a driver: why its workers are not seen
    trials    from this step on remedies are tried, and the steps are not the job's alone
    block     steps of a trial, with a remedy or without; or why there are none
    applied   a remedy was put in place for good, by `perfdoctor run --apply`
    spark     the driver's context was made: what Spark gives an executor and a task
    end       the process left on purpose (absent after a kill)
    exit      what came after the last step, and when Python's exit handlers ran
    nodes     columns, one entry per line in the tree of sampled stacks, numbered in this order from 0
    stacks    columns, one entry per sampled stack
    thread    a thread of the job beside the training thread, by its number in `stacks`
"""

VERSION = 2
"""Of the format; the reader refuses any other. 1: microseconds of whole windows. 2: milliseconds per step."""

LEAVE_AT = "PERFDOCTOR_LEAVE_AT"
"""The variable of the step after which every rank leaves, where that was agreed on before the start."""
PREFIX = "process-"
SUFFIX = ".jsonl"

STEP_COLUMNS = (
    "wall_us",
    "input_wait_us",
    "forward_us",
    "backward_us",
    "optimizer_us",
    "checkpoint_us",
    "gc_us",
    "communication_us",
    "logging_us",
    "cpu_us",
    "micro",
)
"""`other` is what remains of `wall_us`. `micro` counts root forwards, or batches where no forward is seen, or
backward passes where there are no batches either."""

BATCH_COLUMNS = ("loader", "step", "wait_us", "depth", "first", "transport_us", "transport_bytes")
"""`depth`: batches that were ready on arrival, -1 without a queue. `first`: 1 for the first of its iterator."""

EVALUATION_COLUMNS = ("step", "us", "forwards", "forward_us", "loader", "held_out", "evaluating", "samples")
"""Forward passes that train nothing, of one step: with what lies between them, how many, themselves, and the loader of
the last one's batch, -1 without one. `held_out`: 1 for those of a model that trains on a tensor that it was given in
two earlier steps, which have a row of their own. `evaluating`: those in evaluation mode, where no loader gave a batch;
`samples`: the first dimension of what these were given, summed."""

FETCH_COLUMNS = ("getitem_us", "getitem_cpu_us", "collate_us", "collate_cpu_us", "gc_us", "loader")
"""Making one batch. Garbage collections are no part of the first four. `loader`: that it was made for, -1 where that is
not known and in a worker, whose loader is that of the `iter` record that has its pid."""

NODE_COLUMNS = ("above", "site", "owner")
"""`above`: the node of the line that called this one, -1 for none. `owner`: 0 a library's line, 1 the user's, 2 one
in no file."""

STACK_COLUMNS = ("step", "part", "thread", "node", "weight")
"""`step`: -1 in a data-loader worker. `part`: index into `SAMPLED_PARTS`. `thread`: 0 is the one that trains, or makes
batches. `node`: the innermost; -1 where only perfdoctor ran. `weight`: moments at which it would have been met."""

SAMPLED_PARTS = (
    "other",
    "input_wait",
    "forward",
    "backward",
    "optimizer",
    "checkpoint",
    "gc",
    "forward",
    "communication",
    "logging",
)
"""By the numbers of `timeline`; the loss is a part of the forward pass."""

DEVICE_COLUMNS = (
    "step",
    "host_us",
    "total_us",
    "input_wait_us",
    "forward_us",
    "backward_us",
    "optimizer_us",
    "idle_most_us",
    "ahead_low_us",
    "ahead_high_us",
)
"""`host_us` and `total_us` lie between the step's first border and its last, for host and device; `other` is what
remains. `idle_most_us`: at most so long the device had no work. `ahead_*_us` bound how far the host was ahead of the
device at that border where it was furthest."""

ENVIRONMENT = (
    "ATEN_CPU_CAPABILITY CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES DNNL_MAX_CPU_ISA GLIBC_TUNABLES "
    "GOMP_CPU_AFFINITY GOMP_SPINCOUNT GROUP_RANK GROUP_WORLD_SIZE KMP_AFFINITY KMP_BLOCKTIME LD_PRELOAD "
    "LOCAL_RANK LOCAL_WORLD_SIZE MALLOC_ARENA_MAX MALLOC_CONF MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ "
    "MALLOC_TOP_PAD_ MALLOC_TRIM_THRESHOLD_ MASTER_ADDR MASTER_PORT MKL_CBWR MKL_DEBUG_CPU_TYPE "
    "MKL_ENABLE_INSTRUCTIONS MKL_NUM_THREADS MKL_VERBOSE NCCL_DEBUG NODE_RANK NUMEXPR_NUM_THREADS OMP_DYNAMIC "
    "OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_WAIT_POLICY ONEDNN_MAX_CPU_ISA ONEDNN_VERBOSE "
    "OPENBLAS_NUM_THREADS PYTHONDEVMODE PYTHONMALLOC PYTHONPROFILEIMPORTTIME PYTHONTRACEMALLOC "
    "PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING RANK SLURM_JOB_ID "
    "SLURM_LOCALID SLURM_NNODES SLURM_NODEID SLURM_NTASKS SLURM_PROCID SLURM_RESTART_COUNT SLURM_STEP_ID "
    "THP_MEM_ALLOC_ENABLE TORCHDYNAMO_DISABLE TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID "
    "TORCH_DISTRIBUTED_DEBUG TORCH_LOGS TORCH_SHOW_DISPATCH_TRACE WORLD_SIZE"
).split()
"""The only environment variables that are ever recorded."""

VECTOR_EXTENSION_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
)
"""Those of them that keep a library from the CPU's newer instructions."""


LAYER_RANGE = "perfdoctor layer "
"""In a trace, the range around each call of a module, with its number behind."""

_CHANNELS, _OTHER_CHANNELS = 16, 0.15
"""That vectors hold at most; and of a convolution's channels, how many more or less are the same model by and large."""


def even_channels(channels: int) -> int:
    """The nearest multiple of what vectors hold, where that is near; else as many as there are."""
    nearest = max(1, round(channels / _CHANNELS)) * _CHANNELS
    return nearest if abs(nearest - channels) <= _OTHER_CHANNELS * channels else channels


def quoted(text: str) -> str:
    """`text` as a JSON string, without the json module (it may not be imported before torch)."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for char in text:
        code = ord(char)
        if 32 <= code < 127 and char not in '"\\':
            out.append(char)
        elif code < 0x10000:
            out.append(f"\\u{code:04x}")
        else:
            code -= 0x10000
            out.append(f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}")
    return '"' + "".join(out) + '"'


def encoded(value) -> str:
    """`value` as JSON. The json module is not used: a user's own `json.py` may stand in its place."""
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is int:
        return repr(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return repr(value) if value - value == 0 else "null"
    if kind is dict:
        return "{" + ",".join([quoted(str(key)) + ":" + encoded(item) for key, item in value.items()]) + "}"
    if kind is list or kind is tuple:
        if set(map(type, value)) == {int}:
            return "[" + ",".join(map(repr, value)) + "]"
        return "[" + ",".join(map(encoded, value)) + "]"
    if isinstance(value, int):  # an enumeration, numpy's bool
        return repr(int(value))
    return quoted(str(value))


def file_name(pid: int, now_ns: int) -> str:
    """Unique although a pid may serve several programs in a row (exec)."""
    return f"{PREFIX}{pid}-{now_ns}{SUFFIX}"


def trace_of(path: str) -> str:
    """The file beside a process's records that holds the trace of its operator window: `trace-100-7.json`."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/trace-{name[len(PREFIX) : -len(SUFFIX)]}.json"
