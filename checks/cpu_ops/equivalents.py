"""Operators for which others make the same numbers in less time: other orders of products, rows that are indexed, sums
of products by one product of matrices, fewer numbers sorted, parts that are joined once."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Equivalent, Evidence, Step

from .._shared.spread import Spread, spread, starts_of
from .limits import Limits

_NOW = (0.85, 1.15)
"""Of operators that need not run, around what they took in the steps that were watched."""
_OTHER = (1.5, 0.9)
"""Of what the others took when they were tried: right after the first ones, whose numbers were at hand."""
_ROUNDING = "Numbers are added in another order: results differ by rounding."


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What is told of a kind."""

    id: str
    message: str
    reasoning: str
    text: str
    code: str
    risk: str = _ROUNDING
    known: str = "tried on the job's own tensors, the other way takes {other_ms}"
    remedies: tuple[str, ...] = ()


def equivalents(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each kind and line; none where nobody looked, or the others save little."""
    starts = starts_of(evidence.epoch_starts)
    found = spread(evidence.equivalents, starts.equivalents if starts else (), starts)
    return present(*(_finding(step, one, limits, often) for one, often in found))


def _finding(step: Step, one: Equivalent, limits: Limits, often: Spread) -> Finding | None:
    low, high = (max(0.0, now * one.now_ms - other * one.other_ms) for now, other in zip(_NOW, _OTHER, strict=True))
    cost = Cost(step, (low + high) / 2)
    if often.share(step, cost.ms) < limits.repeated_share:
        return None
    how = _REWRITINGS[one.kind]
    return Finding(
        id=how.id,
        severity=cost.severity(limits.repeated_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=how.message + ": {cost_ms} per step ({cost_share})" + often.clause,
        reasoning=how.reasoning + "; as it is: {now_ms} per step, forwards and backwards; " + how.known,
        evidence=(
            *often.measured(cost),
            Measurement("shape", " x ".join(str(size) for size in one.shape), "text", "what need not be made"),
            Measurement("times", one.times_per_step * often.every, "count", f"times {often.each}"),
            Measurement("then_at", str(one.then_at), "text", "the line where it ends"),
            milliseconds("now_ms", one.now_ms, "these operators and their part of the backward pass, per step"),
            milliseconds("other_ms", one.other_ms, "the other way, backward pass included"),
        ),
        location=location(one.at),
        fix=Fix(text=how.text, code=how.code.replace(_EQUATION, one.equation), risk=how.risk, remedies=how.remedies),
        savings=savings(
            step,
            low,
            high,
            "both ways, timed in a step or two of the job itself",
            ceiling=min(high, one.now_ms),
            part=often.part,
        ),
    )


_EQUATION = "EQUATION"
"""In its place the equation with operands in the other order."""
_SORT = "PD10.whole-sort"
_EMPTY = "PD10.empty-product"
_REPEATED = "PD10.broadcast-then-sum"
_DIAGONAL = "PD10.diagonal-covariance"
_INDEPENDENT = "Work with the diagonals: normal distributions that are independent need no matrix."
_AS_INDEPENDENT = (
    "from torch.distributions import Independent, Normal\n"
    "policy = Independent(Normal(mean, std), 1)  # not MultivariateNormal(mean, torch.diag_embed(std**2))"
)
_REWRITINGS = {
    "order": _Rewriting(
        "PD10.product-order",
        "products of matrices go the long way, through {shape} numbers",
        "nothing else reads these numbers, and the result is the same where the other pair is multiplied first",
        "Multiply the pair first that leaves the smaller matrix.",
        "context = k.transpose(-2, -1) @ v  # small\nout = q @ context  # not (q @ k.transpose(-2, -1)) @ v",
    ),
    "einsum": _Rewriting(
        "PD10.einsum-order",
        "this einsum goes the long way, through {shape} numbers",
        "without opt_einsum its operands are multiplied from left to right",
        "Give the operands in another order, or install opt_einsum, which torch then asks for it.",
        f'out = torch.einsum("{_EQUATION}", ...)  # the operands in this order\n# or: pip install opt_einsum',
        remedies=("einsum.order",),
    ),
    "by-kind": _Rewriting(
        "PD10.weights-by-row",
        "this line copies weights for each row, {shape} numbers, of a few kinds",
        "the backward pass adds the gradients of all copies up again",
        "Multiply with the weights of each kind, and let each row pick its own result.",
        "by_kind = h @ weight  # (kinds, rows, width); not torch.bmm(h[source].unsqueeze(1), weight[kind])\n"
        "message = by_kind[kind, source]  # of many kinds: out[own] = h[own] @ weight[k], kind by kind",
    ),
    "one-hot": _Rewriting(
        _EMPTY,
        "this line multiplies by {shape} numbers, a single 1 in each row",
        "such a product picks rows",
        "Index the rows.",
        "rows = weight[index]  # not one_hot(index, n).float() @ weight\n"
        "embedded = nn.Embedding(n, width)(index)  # not nn.Linear(n, width)(one_hot(index, n).float())",
        "None: the same numbers.",
    ),
    "diagonal": _Rewriting(
        _EMPTY,
        "this line multiplies by a diagonal matrix of {shape}",
        "such a product scales rows",
        "Multiply by the diagonal itself.",
        "scaled = diagonal.unsqueeze(1) * x  # not torch.diag(diagonal) @ x",
        "None: the same numbers.",
    ),
    "sparse": _Rewriting(
        _EMPTY,
        "this line multiplies by a matrix of {shape} that is nearly empty",
        "it is the same in every step; only the numbers that are not 0 count, and a sparse matrix holds no others",
        "Keep it as a sparse matrix, row by row.",
        "adjacency = adjacency.to_sparse_csr()  # once, before the loop\nout = adjacency @ x",
    ),
    "by-rows": _Rewriting(
        "PD10.sparse-by-coordinates",
        "this line multiplies by a sparse matrix of {shape} that is kept by coordinates",
        "it is the same in every step, and products with a sparse matrix whose numbers lie row by row are faster here",
        "Keep the matrix by rows.",
        "adjacency = adjacency.coalesce().to_sparse_csr()  # once, before the loop\nout = adjacency @ x",
    ),
    "transform": _Rewriting(
        "PD10.transform-length",
        "Fourier transforms of {shape} numbers, a length with a large prime factor",
        "transforms of lengths that are products of 2, 3, 5 and 7 have fast kernels; one up to 5 % shorter was tried",
        "Take a length nearby that is made of small primes; zeros may fill a longer one.",
        "n_fft = scipy.fft.next_fast_len(n, real=True)  # 1152 for 1151, 625 for 601",
        "The frequencies of the bins move a little: compare the loss, and train the same model with it from its start.",
    ),
    "product": _Rewriting(
        _REPEATED,
        "this line multiplies each by each, {shape} numbers, to add them up",
        "a product of matrices multiplies and adds at once, and makes nothing in between",
        "Let a product of matrices do both.",
        "scores = a @ b.transpose(-2, -1)  # not (a.unsqueeze(1) * b.unsqueeze(0)).sum(-1)\n"
        'scores = torch.einsum("id,jd->ij", a, b)  # the same, for any shapes',
    ),
    "distance": _Rewriting(
        _REPEATED,
        "this line makes {shape} differences, for distances alone",
        "squares and products of the two make the same distances, without what lies in between",
        "Let torch.cdist make the distances.",
        "distances = torch.cdist(a, b)  # not (a.unsqueeze(1) - b.unsqueeze(0)).norm(dim=-1)\n"
        "squared = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T",
        "The distances of points that nearly coincide lose digits, and may come out a little below 0.",
    ),
    "pairs": _Rewriting(
        _REPEATED,
        "this line makes {shape} differences of all pairs, for the sum of their sizes",
        "sorted numbers need no pairs: each counts by how many more lie below it than above",
        "Sort the numbers and weigh them by their place.",
        "places = torch.arange(1 - m, m, 2)  # m numbers in the last dimension of x\n"
        "mean = 2 * (x.sort(-1).values * places).sum(-1) / m**2  # not (x.unsqueeze(-1) - x.unsqueeze(-2)).abs()",
    ),
    "trace": _Rewriting(
        "PD10.product-order",
        "of this product of matrices, {shape} numbers, the diagonal is used",
        "each number on it is one row times one column, and nobody reads the others",
        "Multiply rows and columns one by one and add them up.",
        "each = (a * b.transpose(-1, -2)).sum(-1)  # not (a @ b).diagonal()\n"
        'each = torch.einsum("ij,ij->i", x @ precision, x)  # x precision x of each row',
    ),
    "ignored": _Rewriting(
        "PD10.ignored-scores",
        "this line makes {shape} scores, and the loss ignores many rows",
        "a row that is ignored adds nothing to the loss or to any gradient",
        "Pick the rows that count before their scores are made.",
        "counts = labels != -100\nloss = criterion(head(hidden[counts]), labels[counts])  # not of all rows",
        "None for training; who reads all scores elsewhere (an accuracy) has to ask for them.",
    ),
    "picked": _Rewriting(
        "PD10.ignored-scores",
        "this line makes {shape} numbers, and a few of their rows are read",
        "nothing else reads these numbers, and each row is one input times the same weights",
        "Pick the rows before the layer.",
        "scores = head(hidden[rows, places])  # not head(hidden)[rows, places]\n"
        "logits = head(hidden[:, -1])  # not head(hidden)[:, -1]",
        "None: the same numbers.",
    ),
    "enlarged": _Rewriting(
        "PD10.enlarged-first",
        "this line enlarges to {shape} numbers before a 1x1 convolution",
        "such a convolution mixes the channels of each pixel, which may as well be done before there are more of them",
        "Convolve first, and enlarge what comes out.",
        "out = upsample(conv1x1(x))  # not conv1x1(upsample(x))\n"
        "nn.Sequential(nn.Conv2d(width, channels, 1), nn.Upsample(scale_factor=4))",
    ),
    "grown": _Rewriting(
        "PD10.grown-by-cat",
        "this line joins more and more, by copies of up to {shape} numbers",
        "nothing but the next of these calls reads what they make",
        "Collect the parts in a list and join them once.",
        "parts.append(part)  # in the loop\nwhole = torch.cat(parts, dim=1)  # once, after it",
        "None: the same numbers.",
    ),
    "rebuilt": _Rewriting(
        "PD10.rebuilt-by-cat",
        "this line copies {shape} numbers to replace a few of them",
        "most of what it joins is what it has made in the step before",
        "Write the new part over the oldest, in place.",
        "queue[at : at + len(keys)] = keys  # after the backward pass; not torch.cat([queue[len(keys):], keys])\n"
        "at = (at + len(keys)) % len(queue)",
        "Rows are no longer in the order of their age; and what a backward pass still needs must not be written to.",
    ),
    "written": _Rewriting(
        "PD10.written-by-parts",
        "this line writes parts into a tensor of {shape} one after the other",
        "for each write the backward pass copies the gradients of the whole tensor",
        "Collect the parts in a list and join them once.",
        "parts.append(part)  # in the loop, not whole[:, t] = part\n"
        "whole = torch.stack(parts, dim=1)  # once, after it",
        "None: the same numbers.",
    ),
    "taken-apart": _Rewriting(
        "PD10.taken-apart",
        "this line reads parts of a tensor of {shape} one after the other",
        "for each part the backward pass fills a tensor as large as the whole with zeros, and adds it to the others",
        "Take it apart at once.",
        "for part in whole.unbind(dim=1):  # not whole[:, t] for each t; of slices: whole.split(size, dim=1)\n"
        "    state = cell(part, state)",
        "None: the same numbers.",
        "two of these parts take as long as joining the gradients of all, {other_ms}",
    ),
    "columns": _Rewriting(
        "PD10.column-lookup",
        "this line looks up columns of a table of {shape}",
        "each number of a column lies in a line of memory of its own, and so does its gradient",
        "Keep the table the other way round, so that what is looked up lies together.",
        "self.table = nn.Parameter(torch.randn(rows, columns, width))  # not (width, rows, columns)\n"
        "entries = self.table[row, column]  # not self.table[:, row, column].t()",
        "Checkpoints hold the table as it was: turn it round as they are loaded (`table.movedim(0, -1)`).",
    ),
    "diagonal-factor": _Rewriting(
        _DIAGONAL,
        "this line factors matrices that are diagonal, {shape} numbers",
        "the factor of such a matrix holds the roots of what is on it",
        _INDEPENDENT,
        _AS_INDEPENDENT,
    ),
    "diagonal-solve": _Rewriting(
        _DIAGONAL,
        "this line solves for matrices that are diagonal, {shape} numbers",
        "that is to divide by what is on them",
        _INDEPENDENT,
        _AS_INDEPENDENT,
    ),
    "inverse": _Rewriting(
        "PD10.inverse-then-product",
        "this line inverts matrices to multiply with them, {shape} numbers",
        "nothing else reads the inverse, and to solve for the product takes a third of its arithmetic",
        "Solve for the product.",
        "x = torch.linalg.solve(a, b)  # not torch.inverse(a) @ b\n"
        "x = torch.cholesky_solve(b, torch.linalg.cholesky(a))  # of a covariance, whose factor serves logdet too",
    ),
    "triangular-determinant": _Rewriting(
        "PD10.triangular-matrices",
        "the determinant of triangular matrices, {shape} numbers, is computed as of any",
        "the determinant of such a matrix is the product of what is on its diagonal",
        "Take it from the diagonal.",
        "log_det = lower.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)  # not torch.slogdet(lower)[1]",
    ),
    "triangular-inverse": _Rewriting(
        "PD10.triangular-matrices",
        "triangular matrices, {shape} numbers, are inverted as any others",
        "to solve with such a matrix is to substitute, row by row",
        "Solve with it as it is.",
        "x = torch.linalg.solve_triangular(lower, b, upper=False)  # not torch.inverse(lower) @ b",
    ),
    "top": _Rewriting(
        _SORT,
        "this line sorts {shape} numbers, of which a few are used",
        "to find those needs no sort",
        "Take the first few with topk.",
        "values, places = scores.topk(k, dim=1)  # not scores.sort(dim=1, descending=True), then [:, :k]",
        "Of equal numbers others may come first.",
    ),
    "rank": _Rewriting(
        _SORT,
        "this line sorts {shape} numbers to find one place in each row",
        "its place is how many are ahead of it",
        "Count the numbers ahead of it.",
        "rank = (scores > scores.gather(1, target.unsqueeze(1))).sum(1)  # from 0; no sort",
        "Of equal numbers none is ahead of the other.",
    ),
    "second-sort": _Rewriting(
        _SORT,
        "this line sorts places of a sort, {shape} of them, for ranks",
        "writing 0, 1, 2 ... to these places makes the same ranks",
        "Turn the order round by writing to it.",
        "order = scores.argsort(1)\n"
        "ranks = torch.empty_like(order).scatter_(1, order, torch.arange(n).expand_as(order))  # no second argsort",
        "None: the same numbers.",
    ),
}
"""By `Equivalent.kind`."""
