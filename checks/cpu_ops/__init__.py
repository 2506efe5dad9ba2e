"""Python between the operators: loops, scalar reads, trips between host and device, functions that compute without
torch; and work that is done twice or the long way round.

What it looks at
----------------
For a step or two, every operator with the line that issued it; every read of a scalar (`.item()`, `float(t)`, an
f-string, `if t > 0`), every copy between devices and every tensor made of a list, with its line and duration; and on a
GPU the copies that the device saw. The source of the loop around a line that runs often: what an iteration needs from
the one before. For three steps on a CPU, which operators are called with the same arguments as before (the same memory,
unchanged since, and what was made of it in the same way), and what they and their nodes in the backward pass take; and
which of them could be others: products of matrices in another order, with a matrix that is nearly empty or holds
numbers only in blocks along its diagonal, or for their diagonal alone, products, differences and sizes of differences
of each with each that are added up, sorts of which little is used, scores that a loss is told to ignore or of which a
few rows are picked, pictures that are made larger before a 1x1 convolution, convolutions of which others read every so
many numbers only, tensors that are copied though neither copy nor original changes while both are there, layers of rows
that were picked and joined, rows that were picked and then cut to a few, a tensor that each iteration joins with one
more part or writes one more part into, a tensor that is read part by part, a table of which columns are looked up, a
queue that each step joins anew to replace a few of its rows, weights that are copied for each row, one of a few kinds,
to be multiplied with it, diagonal matrices that are factored or solved with, inverses that are only multiplied with,
determinants and inverses of triangular matrices, sparse ones that are kept by coordinates, Fourier transforms of
lengths with a large prime factor, those of real numbers as if they were complex (where only the real part of what comes
back is read), and calls of `torch.einsum` with three operands or more, in all orders; permutations of which each step
reads a few places, by `torch.randperm` or `np.random.choice`; squares of parameters that are added up for a penalty;
rows that are picked and added up at other places along edges that stay the same; patches that are copied for what a
convolution does, and convolutions with a kernel for each sample; products of integers; attention whose mask lets
positions see those of their own group alone; layer norms, activations and softmax made of single operators. Such a way
is tried on the job's own tensors, timed, and counts only if the numbers are the same and nobody else reads what would
not be made; of a shorter transform, of a queue's new rows and of what is drawn only the time is compared, and of parts
that are written or read what the backward pass does for them is counted. Of each module inside another one, how many of
the rows that it is given for the first time differ; where half of them or fewer do, its own pass is run again after the
last step with each once, which has to give the same numbers. Of a module that a loop calls again and again, and gives
what it has just returned: whether the source lets one call need the one before by anything else, and, after the last
step, whether one call for all positions gives the same numbers, and what it takes; the same of one that it gives the
beginning of a sequence, each time with one position more. For three steps, the arguments and results of each call of
the user's own functions, by hashes of what they hold: what Python and NumPy compute again; where a function seems to be
given one of a few arguments by chance, how many there are is estimated from how many calls came again, and from that
what comes again in the run. Into which operators each result goes: what no backward pass goes through and nobody reads;
what leads to a product with 0 and to nothing else with a graph; and what is made of nothing but samples and tensors
that stay as they are until the job's end. Where steps take long at equal distances, the operators without a graph of
one of them, such as those of an evaluation, in the same ways. For a step or two, all lines of the user's code with what
they take, Python and libraries included: those that issue hardly any operators are told by function, or as waiting
where the thread has no CPU meanwhile and wants none. The same of one step before which the loop does something else,
where such steps come at equal distances. Operators that few networks need in every step (decompositions of matrices,
sorts, Fourier transforms, distances of all pairs), where one takes a third of it. Loops over parameters and copies of
the model's state are told by PD17.

Of a trace: the device's idle time after the host waited for it, while it launches, and while it runs other code;
how much of the launching is the profiler's own doing cannot be told, so that it has a direction and no size.

Why it costs time
-----------------
A loop over the samples of a batch pays 5 to 20 us of Python and dispatch for every element, where one operator on the
whole batch pays them once: such loops in losses were 17 to 59 times slower than their vectorised form. On a GPU a
scalar read makes the host wait until the device has done all that was asked of it, and then the device waits for the
host. On a CPU a read is cheap, but one per sample and step adds up. A list holds an object for each number:
`torch.tensor()` reads a million of them in 144 ms, NumPy in 20. A property that computes is computed each time it is
read, and a second forward pass on the same batch, for a metric or another loss, takes as long as the first one: a graph
model whose vectors were propagated twice per step took twice as long. Masks, positional encodings, normalised adjacency
matrices and the features of a frozen encoder are the same in every step; so is a table or a file that a function
computes or reads each time it is called. A loss whose weight is 0 is computed, and gone back through with zeros, as one
that counts: a decoder so weighted took half of each step of a small autoencoder. `(q @ k.T) @ v` without a softmax in
between makes a matrix of each position with each, `q @ (k.T @ v)` one of each feature with each; differences of each
with each take as many numbers as there are pairs times features, from memory and back, where a product of matrices
needs the pairs alone. A tensor that is filled or read part by part (`outputs[:, t] = h`, `inputs[:, t]`) is copied or
made anew once for each part in the backward pass: of 100 parts, a hundred times. Rows that are repeated before a layer
(one user for each candidate, an atom for each of its bonds, a grid for each sample) are computed as often as they come,
and so are their gradients. `torch.randperm(n)[:256]` and `np.random.choice(n, 256, replace=False)` shuffle all n
numbers: of 400,000 in 3.0 and 4.8 ms, where drawing 256 takes 2 us by torch and 9 by a generator of NumPy's. The
largest singular value of two matrices of 256 x 256, by a whole decomposition in each step, took 12.9 s of a job; by one
step of power iteration, 2.2 s with all else.

Of integers no library of linear algebra has products: of two matrices of 896 x 896 they take 44 ms as int64, 8 as
float32 and 18 as float64, which hold the same sums exactly below 2**24 and 2**53.

What nodes of a graph send to their neighbours (`total.index_add_(0, to, x[origin])`) is copied once for each edge and
added up row by row; the product with a sparse matrix of the edges goes through it once (60 ms a step, and 25 with it,
for 80,000 edges and 64 features). Patches that `F.unfold` copies side by side take as many numbers as their sizes
times the picture's: a convolution reads them where they are (40 ms, and 9). Cosines of all pairs by
`F.cosine_similarity` on repeated rows took 54 ms, and 4 by one product of rows of length 1.

The backward pass of `x[index]` adds gradients up number by number: with 8,000 to 80,000 rows of 32 to 128 numbers it
took 2.5 to 6 times as long as that of `x.index_select(0, index)`.

A layer norm made of single operators goes through memory with each of them: it took 6 to 14 times as long as torch's
own, a softmax 6 times, a GELU 3 to 5 times, a SiLU and the logarithm of a softmax twice (of a million numbers and of
two, forwards and backwards). Made by hand, a norm by the root of the mean square and Mish take as long as torch's.

What a frozen backbone, or a spectrogram, makes of a sample is the same in each epoch, where nothing about the sample is
changed at random: a head on features of 64 numbers, made once and kept, trained 6.5 times as fast.

Example
-------
    for i in range(len(batch)):
        loss = loss + (output[i] - target[i]).pow(2).mean()
    hits = [int(output.argmax() == target) for output, target in zip(outputs, targets)]

    loss = criterion(model(inputs), labels)
    accuracy = (model(inputs).argmax(1) == labels).float().mean()   # the second pass has the same result

    outputs[:, t] = h                                                 # in a loop: outputs.append(h), then torch.stack
    h = cell(projected[:, t], h)                                      # for x in projected.unbind(1)
    scores, h = decoder(tokens[:, t : t + 1], h)                      # in a loop: decoder(tokens, h)
    context = (q @ k.transpose(-2, -1)) @ v                          # no softmax: q @ (k.transpose(-2, -1) @ v)
    squared = (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1)        # torch.cdist
    hardest = losses.sort(descending=True).values[:16]                # losses.topk(16)
    features = F.one_hot(atom, 100).float() @ weight                  # weight[atom]
    loss = F.cross_entropy(scores, F.one_hot(kind, 24).float())       # F.cross_entropy(scores, kind)
    policy = MultivariateNormal(mean, torch.diag_embed(std**2))       # Independent(Normal(mean, std), 1)
    loss = F.cross_entropy(head(hidden), labels)                      # labels are -100 for 85 % of the rows
    logits = head(hidden)[:, -1]                                      # head(hidden[:, -1])
    x = torch.inverse(a) @ b                                          # torch.linalg.solve(a, b)
    log_det = torch.logdet(lower)                                     # lower.diagonal(0, -2, -1).log().sum(-1)
    image = conv1x1(F.interpolate(x, scale_factor=4))                 # F.interpolate(conv1x1(x), scale_factor=4)
    scores = q @ self.queue.clone()                                   # q @ self.queue, where it is written to later
    user = tower(history.repeat_interleave(k, 0))                     # tower(history).repeat_interleave(k, 0)
    messages = x[source]                                              # x.index_select(0, source)
    y = 0.5 * x * (1 + torch.tanh(c * (x + 0.044715 * x**3)))         # F.gelu(x, approximate="tanh")
    y = (x - x.mean(-1, True)) / (x.std(-1, True) + eps)              # F.layer_norm(x, x.shape[-1:])
    features = backbone(images)                                       # frozen: once per sample, kept in a tensor
    rows = torch.randperm(n)[:256]                                    # torch.randint(n, (256,))
    loss = loss + 1e-3 * torch.linalg.matrix_norm(weight, 2)          # power iteration: u @ weight @ v
    loss = loss + config.weight * reconstruction(model, x)            # weight is 0: if config.weight > 0: ...
    loss = loss + 1e-4 * sum(p.pow(2).sum() for p in parameters)      # optim.SGD(parameters, lr, weight_decay=2e-4)

How to fix
----------
Work on whole tensors; where an iteration needs the one before (a rollout, a simulation), several environments or
sequences at once, or the body compiled; stack what must be read and read it once; accumulate on the device
(`total += loss.detach()`) and read every 50 steps; `torch.where` instead of `if`; create tensors where they are used
(`device=`). Keep a result in a variable for its second use; compute what does not change before the loop, or keep it as
a buffer of the model. Multiply the smaller pair of matrices first, index rows, take the first few with `topk`.

When it stays silent
--------------------
One `loss.item()` per step on a CPU; a line that calls a whole network once, however many operators that issues; reads
by torch's own optimizers; anything below its share of the step; on a GPU, reads in a step that the device bounds: it
has work while the host waits. Layers called one after another are not a loop over elements unless they come by the
dozen and each issues small operators. A loop whose iterations need one another (`h = cell(x[t], h)`, or a policy that
acts on the state of `env.step()`) is an opportunity at most, without a number, and one of an installed package, such as
a solver's, is none of the job's. Work that is repeated for a purpose: activations that a checkpoint computes again, two
passes that draw their own dropout, passes with batch normalisation that keeps statistics, a second backward pass
through the same batch, passes with other weights (sharpness-aware minimisation), functions that draw random numbers,
call a model, change what they are given or return little (a flag, a number), a critic's passes with and without
`detach()`; results that are changed in place afterwards, and memory that is filled with constants; a model whose
parameters stay as they are, on a batch that is the same in every step, as benchmarks have it in place of real data. A
product that goes through a softmax, a mask or anything else on its way to the next one, differences that are used for
themselves, a sort all of which is read, a permutation that later steps go on with. Rows that come several times in the
data themselves, padding, and modules in which rows depend on one another or on chance (batch normalisation, dropout).

Limits
------
What a function does in Python or NumPy is not known, nor whether training needs it: an opportunity, from a third of its
time on. What a line costs in an ordinary step is estimated from its share of the operators and pauses in the window. On
a GPU the duration of a scalar read is the time that the host waited, not all of which is lost: the prediction starts at
a tenth. Operators that silently fall back from Apple's MPS to the CPU are not seen. Nothing inside compiled code is
seen. What an iteration needs is read from the source of one function and of the methods of its class; what a function
changes in its arguments, or an object behind another name, is not seen. Where the source cannot be read, a loop is
taken for one over elements. Repeated work is looked for on a CPU only, not in compiled jobs nor while batches are made;
what comes again after more than three steps is PD03's, and seen of functions alone. A result without a graph, or one
that was detached, may have gone to NumPy and counts as read. Values are the same by what made them of what: data that
are read anew are others, though they hold the same numbers. Memory that NumPy writes to behind torch's back is told
from some of the results' numbers. What is read from Python or NumPy of a product or a sort is not seen (`.tolist()`);
nor that a matrix which is made anew in each step is sparse, or that the second of two is. What the backward pass of the
other way takes is taken for twice its forward pass. Of what comes again in each epoch, that a data set gives the same
samples is asked only of a job that perfdoctor ends, and samples that a `collate_fn` of the job's own puts together are
left alone; so is what a layer makes of sequences whose first dimension is time. A generator of NumPy's or a `choice`
that was imported by its name is not seen; rows are compared in the first call of a module alone.

References
----------
- Deeplearning4j, "How to debug performance issues", step 10
- HarryVolek/PyTorch_Speaker_Verification#33: loops in a loss, 17 to 59 times
- AWSLabs fvdb-reality-capture#144: one of two `loss.item()` removed, 1.05 to 1.10 times
- PyTorch, "Performance tuning guide": avoid unnecessary CPU-GPU synchronization
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Finding, Measurement, Outcome, cannot_tell, clear, found, milliseconds
from perfdoctor.api.quantities import CallSite, Evidence, Line, Missing, SameResult, Step

from .._shared.asserting import asserting_lines
from .._shared.lines import key
from .._shared.parameters import parameter_loops, state_lines
from .._shared.reads import of_the_job
from .._shared.traced import traced
from .dear_operators import dear_operators
from .device_sync import device_syncs
from .element_loops import element_loops
from .equivalents import equivalents
from .in_turn import called_in_turn
from .limits import Limits
from .list_conversions import list_conversions
from .on_device import in_trace
from .python_between import python_between
from .python_work import python_work
from .repeated import repeated_work
from .repeated_rows import repeated_rows
from .round_trips import round_trips
from .same_each_epoch import same_each_epoch
from .same_result import is_about, needless, runs_in, same_result
from .scalar_reads import ScalarReads
from .unused import unused_work
from .weighted import weighted_by_zero


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """What torch does of itself, scalar reads, copies, lists, then loops over elements that are none of these."""
    step, calls, lines = evidence.step, evidence.call_sites, evidence.hot_lines
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if isinstance(calls, Missing):
        return cannot_tell(f"calls were not watched: {calls}")
    if isinstance(lines, Missing):
        return cannot_tell(f"operators were not counted by line: {lines}")
    elsewhere = _of_parameters(evidence, step, calls, lines) | asserting_lines(calls)
    reads = tuple(read for read in of_the_job(calls) if key(read.site) not in elsewhere)
    told = elsewhere | {key(call.site) for call in reads if call.calls_per_step >= limits.least_runs}
    if evidence.on_cuda:
        read = device_syncs(evidence, step, reads, limits)
    else:
        read = ScalarReads(evidence, step, reads, lines, limits).findings()
    again, repeated = _once(needless(evidence, step, limits), repeated_work(evidence, step, limits))
    watched = () if isinstance(evidence.code_lines, Missing) else evidence.code_lines
    sites = (*(line.site for line in lines), *(line.site for line in watched))
    lines_told = told | {key(site) for site in sites if runs_in(site, again)}
    in_turn, of_calls = called_in_turn(evidence, step, limits)
    others = [line for line in lines if line.loop is None or (line.loop.line, line.loop.header) not in of_calls]
    loops, looped = element_loops(evidence, step, others, lines_told, limits)
    findings = (
        *read,
        *round_trips(step, calls, limits),
        *list_conversions(step, calls, limits),
        *in_turn,
        *loops,
        *repeated,
        *(same_result(evidence, step, one, limits) for one in again),
        *equivalents(evidence, step, limits),
        *repeated_rows(evidence, step, limits),
        *unused_work(evidence, step, limits),
        *weighted_by_zero(evidence, step, limits),
        *same_each_epoch(evidence, step, limits),
    )
    lines_told |= looped
    findings += dear_operators(evidence, step, lines, lines_told | _named(findings), limits)
    findings += python_work(evidence, step, lines_told | _named(findings), limits)
    findings += python_between(evidence, step, limits)
    shared = _measured(reads, lines)
    if findings:
        return found(*findings, measurements=shared)
    return clear(
        "{reads:scalar read} per step: {reads_ms}; the busiest line ran {runs:time} and issued {ops:operator}",
        *shared,
    )


def _once(
    again: tuple[SameResult, ...], repeated: tuple[Finding, ...]
) -> tuple[tuple[SameResult, ...], tuple[Finding, ...]]:
    """Without what the others say of the same work: operators that are computed again inside of a function that is
    called again are told where they are most of it, and the function where they are not."""

    def is_told(one: SameResult) -> bool:
        return any(is_about(finding, one) and finding.savings.high_ms >= one.ms_per_step for finding in repeated)

    left = tuple(one for one in again if not is_told(one))
    return left, tuple(finding for finding in repeated if not any(is_about(finding, one) for one in left))


def _named(findings: tuple[Finding, ...]) -> set[tuple[str, int]]:
    """Their lines."""
    return {(one.location.file, one.location.line) for one in findings if one.location is not None}


def _of_parameters(
    evidence: Evidence, step: Step, calls: tuple[CallSite, ...], lines: tuple[Line, ...]
) -> set[tuple[str, int]]:
    """Lines that the check of the optimizer judges. On a GPU what a read there makes the host wait is judged here."""
    state = {key(line.site) for line in state_lines(step, lines)}
    loops = parameter_loops(evidence, lines, of_the_job(calls), state)
    return state | {key(line.site) for loop in loops if not (loop.reads and evidence.on_cuda) for line in loop.lines}


def _measured(reads: tuple[CallSite, ...], lines: tuple[Line, ...]) -> tuple[Measurement, ...]:
    busiest = max(lines, key=lambda line: line.ops_per_step, default=None)
    return (
        Measurement("reads", sum(call.calls_per_step for call in reads), "count", "scalar reads per step"),
        milliseconds("reads_ms", sum(call.ms_per_step for call in reads), "their time per step"),
        Measurement(
            "runs", max(1, round(busiest.runs_per_step)) if busiest else 0, "count", "runs of the busiest line"
        ),
        Measurement("ops", busiest.ops_per_step if busiest else 0.0, "count", "operators it issues per step"),
    )


CHECK = Check(code="PD10", name="cpu-ops", title="syncs and CPU-only operators", limits=Limits(), examine=examine)
