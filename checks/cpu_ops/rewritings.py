"""What is told of operators that could be others, by their kind."""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDING = "Numbers are added in another order: results differ by rounding."


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What is told of a kind."""

    id: str
    message: str
    reasoning: str
    text: str
    code: str
    risk: str = _ROUNDING
    known: str = "tried on the job's own tensors, the other way takes {other_ms}"
    remedies: tuple[str, ...] = ()
    is_ill: bool = True
    """Else nothing is wrong, but it may be faster."""
    options: tuple[str, ...] = ()
    """By which a library is asked for it."""


EQUATION = "EQUATION"
"""In its place the equation with operands in the other order."""
_BY_HAND = "PD10.function-by-hand"
_SORT = "PD10.whole-sort"
_SHUFFLE = "PD10.whole-shuffle"
_EMPTY = "PD10.empty-product"
_REPEATED = "PD10.broadcast-then-sum"
_OF_REAL = (
    "PD10.complex-transform",
    "Fourier transforms of {shape} real numbers as of complex ones",
    "of what comes back only the real part is read; half of the spectrum mirrors the other half, and makes the same",
    "Take the transforms of real numbers: half as many frequencies, there, back and in between.",
    "spectrum = torch.fft.rfft(x)  # not torch.fft.fft(x)\n"
    "y = torch.fft.irfft(spectrum * response, n=x.shape[-1])  # not torch.fft.ifft(...).real",
    "None for the numbers, up to rounding; a filter that is made for all frequencies is cut to the first n // 2 + 1.",
)
_DIAGONAL = "PD10.diagonal-covariance"
_INDEPENDENT = "Work with the diagonals: normal distributions that are independent need no matrix."
_AS_INDEPENDENT = (
    "from torch.distributions import Independent, Normal\n"
    "policy = Independent(Normal(mean, std), 1)  # not MultivariateNormal(mean, torch.diag_embed(std**2))"
)
REWRITINGS = {
    "order": Rewriting(
        "PD10.product-order",
        "products of matrices go the long way, through {shape} numbers",
        "nothing else reads these numbers, and the result is the same where the other pair is multiplied first",
        "Multiply the pair first that leaves the smaller matrix.",
        "context = k.transpose(-2, -1) @ v  # small\nout = q @ context  # not (q @ k.transpose(-2, -1)) @ v",
    ),
    "einsum": Rewriting(
        "PD10.einsum-order",
        "this einsum goes the long way, through {shape} numbers",
        "without opt_einsum its operands are multiplied from left to right",
        "Give the operands in another order, or install opt_einsum, which torch then asks for it.",
        f'out = torch.einsum("{EQUATION}", ...)  # the operands in this order\n# or: pip install opt_einsum',
        remedies=("einsum.order",),
    ),
    "by-kind": Rewriting(
        "PD10.weights-by-row",
        "this line copies weights for each row, {shape} numbers, of a few kinds",
        "the backward pass adds the gradients of all copies up again",
        "Multiply with the weights of each kind, and let each row pick its own result.",
        "by_kind = h @ weight  # (kinds, rows, width); not torch.bmm(h[source].unsqueeze(1), weight[kind])\n"
        "message = by_kind[kind, source]  # of many kinds: out[own] = h[own] @ weight[k], kind by kind",
    ),
    "one-hot": Rewriting(
        _EMPTY,
        "this line multiplies by {shape} numbers, a single 1 in each row",
        "such a product picks rows",
        "Index the rows.",
        "rows = weight[index]  # not one_hot(index, n).float() @ weight\n"
        "embedded = nn.Embedding(n, width)(index)  # not nn.Linear(n, width)(one_hot(index, n).float())",
        "None: the same numbers.",
    ),
    "one-hot-sum": Rewriting(
        "PD10.picked-by-product",
        "a one-hot tensor picks one of each row of {shape}, by a product",
        "one number of each row counts, and the others are multiplied by 0, forwards and backwards",
        "Pick by index: `gather`, or a loss that is given classes.",
        "loss = F.cross_entropy(scores, target)  # not F.cross_entropy(scores, one_hot(target, n).float())\n"
        "value = q.gather(1, action.unsqueeze(1)).squeeze(1)  # not (q * one_hot(action, n)).sum(1)",
        "None: the same numbers.",
    ),
    "diagonal": Rewriting(
        _EMPTY,
        "this line multiplies by a diagonal matrix of {shape}",
        "such a product scales rows",
        "Multiply by the diagonal itself.",
        "scaled = diagonal.unsqueeze(1) * x  # not torch.diag(diagonal) @ x",
        "None: the same numbers.",
    ),
    "sparse": Rewriting(
        _EMPTY,
        "this line multiplies by a matrix of {shape} that is nearly empty",
        "it is the same in every step; only the numbers that are not 0 count, and a sparse matrix holds no others",
        "Keep it as a sparse matrix, row by row.",
        "adjacency = adjacency.to_sparse_csr()  # once, before the loop\nout = adjacency @ x",
    ),
    "blocks": Rewriting(
        "PD10.block-diagonal",
        "this line multiplies by a matrix of {shape} that is 0 outside of blocks",
        "what lies outside of the blocks is multiplied and added all the same",
        "Stack the blocks, and multiply each by its own rows; pad them to the size of the largest.",
        "out = torch.stack(blocks) @ x.unflatten(0, (len(blocks), -1))  # not torch.block_diag(*blocks) @ x",
        "None: the same numbers.",
    ),
    "attended": Rewriting(
        "PD10.masked-to-groups",
        "attention over {shape} pairs, of which the mask leaves those within groups",
        "the mask lets each position see its own group alone, and all groups have the same size; what it hides is "
        "computed first",
        "Put the groups into the batch: attention within each needs no mask.",
        "q, k, v = (x.unflatten(2, (groups, -1)).flatten(1, 2) for x in (q, k, v))  # groups beside the heads\n"
        "y = F.scaled_dot_product_attention(q, k, v)  # not over all positions with attn_mask=mask",
    ),
    "by-rows": Rewriting(
        "PD10.sparse-by-coordinates",
        "this line multiplies by a sparse matrix of {shape} that is kept by coordinates",
        "it is the same in every step, and products with a sparse matrix whose numbers lie row by row are faster here",
        "Keep the matrix by rows.",
        "adjacency = adjacency.coalesce().to_sparse_csr()  # once, before the loop\nout = adjacency @ x",
    ),
    "integers": Rewriting(
        "PD10.integer-product",
        "this line multiplies matrices of integers, {shape} numbers",
        "no library of linear algebra does that; of floating-point numbers that hold each sum exactly it is faster",
        "Multiply floating-point numbers; convert back where integers are asked for.",
        "counts = a.float() @ b.float()  # not a.long() @ b.long(); exact below 2**24, with a.double() below 2**53",
        "None while sums stay below that: the same numbers.",
    ),
    "transform": Rewriting(
        "PD10.transform-length",
        "Fourier transforms of {shape} numbers, a length with a large prime factor",
        "transforms of lengths that are products of 2, 3, 5 and 7 have fast kernels; one up to 5 % shorter was tried",
        "Take a length nearby that is made of small primes; zeros may fill a longer one.",
        "n_fft = scipy.fft.next_fast_len(n, real=True)  # 1152 for 1151, 625 for 601",
        "The frequencies of the bins move a little: compare the loss, and train the same model with it from its start.",
    ),
    "real-transform": Rewriting(*_OF_REAL),
    "half-transform": Rewriting(*_OF_REAL),
    "messages": Rewriting(
        "PD10.scattered-sums",
        "this line copies {shape} numbers along a graph's edges, to add them up",
        "the edges are the same in every step, and a product with a sparse matrix of them copies nothing",
        "Multiply by the adjacency, kept as a sparse matrix row by row.",
        "edges = torch.sparse_coo_tensor(torch.stack([to, origin]), torch.ones(len(to)), (n, n)).to_sparse_csr()\n"
        "total = edges @ x  # edges made once; not torch.zeros_like(x).index_add_(0, to, x[origin])",
    ),
    "modulated": Rewriting(
        "PD10.kernels-by-sample",
        "this convolution has a kernel for each sample, {shape}, in as many groups",
        "they are one kernel whose channels are scaled, and groups of their own have no fast kernel here",
        "Scale the channels before and after one convolution with the kernel that all share.",
        "y = F.conv2d(x * scale[:, :, None, None], weight, padding=1)  # not one grouped convolution of b kernels\n"
        "y = y * torch.rsqrt(scale.square() @ weight.square().sum((2, 3)).t() + eps)[:, :, None, None]",
    ),
    "unfolded": Rewriting(
        "PD10.unfolded-convolution",
        "this line copies patches, {shape} numbers, for a product that is a convolution",
        "a convolution reads them where they are",
        "Let a convolution do both, with a weight of any making.",
        "y = F.conv2d(x, weight, padding=2)  # not weight.flatten(1) @ F.unfold(x, 5, padding=2)",
    ),
    "layer-norm": Rewriting(
        _BY_HAND,
        "this line begins a layer norm made of single operators, {shape} numbers",
        "each of them goes through memory, forwards and backwards; torch's own operator does so once",
        "Call torch's, or use `nn.LayerNorm`.",
        "y = F.layer_norm(x, x.shape[-1:], weight, bias, eps)  # not weight * (x - mean) / (std + eps) + bias",
        "`x.std()` divides by n - 1, and `layer_norm` by n: of 64 numbers results differ by 0.8 %.",
        is_ill=False,
    ),
    "gelu": Rewriting(
        _BY_HAND,
        "this line makes a GELU of single operators, {shape} numbers",
        "each of them goes through memory, forwards and backwards; torch's own operator does so once",
        "Call `F.gelu`.",
        'y = F.gelu(x, approximate="tanh")  # not 0.5 * x * (1 + torch.tanh(...)); of erf: F.gelu(x)\n'
        'GPT2Config(activation_function="gelu_pytorch_tanh")  # of transformers: not "gelu_new"',
        is_ill=False,
        options=("activation_function", "hidden_act", "hidden_activation"),
    ),
    "silu": Rewriting(
        _BY_HAND,
        "this line makes a SiLU of two operators, {shape} numbers",
        "each of them goes through memory, forwards and backwards; torch's own operator does so once",
        "Call `F.silu`.",
        "y = F.silu(x)  # not x * torch.sigmoid(x)",
        is_ill=False,
    ),
    "softmax": Rewriting(
        _BY_HAND,
        "this line makes a softmax of single operators, {shape} numbers",
        "each of them goes through memory, forwards and backwards; torch's own operator does so once",
        "Call torch's, which takes the largest number off by itself.",
        "weights = scores.softmax(-1)  # not exp = scores.exp(); exp / exp.sum(-1, keepdim=True)",
        is_ill=False,
    ),
    "log-softmax": Rewriting(
        _BY_HAND,
        "this line takes the logarithm of a softmax, {shape} numbers",
        "torch has both in one operator, which also loses no digits of small probabilities",
        "Call it.",
        "logs = scores.log_softmax(-1)  # not scores.softmax(-1).log()\n"
        "loss = F.cross_entropy(scores, labels)  # log-softmax and the loss in one",
        is_ill=False,
    ),
    "product": Rewriting(
        _REPEATED,
        "this line multiplies each by each, {shape} numbers, to add them up",
        "a product of matrices multiplies and adds at once, and makes nothing in between",
        "Let a product of matrices do both.",
        "scores = a @ b.transpose(-2, -1)  # not (a.unsqueeze(1) * b.unsqueeze(0)).sum(-1)\n"
        'scores = torch.einsum("id,jd->ij", a, b)  # the same, for any shapes\n'
        "cosines = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T  # not F.cosine_similarity(a.unsqueeze(1), b, -1)",
    ),
    "distance": Rewriting(
        _REPEATED,
        "this line makes {shape} differences, for distances alone",
        "squares and products of the two make the same distances, without what lies in between",
        "Let torch.cdist make the distances.",
        "distances = torch.cdist(a, b)  # not (a.unsqueeze(1) - b.unsqueeze(0)).norm(dim=-1)\n"
        "squared = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T",
        "The distances of points that nearly coincide lose digits, and may come out a little below 0.",
    ),
    "pairs": Rewriting(
        _REPEATED,
        "this line makes {shape} differences of all pairs, for the sum of their sizes",
        "sorted numbers need no pairs: each counts by how many more lie below it than above",
        "Sort the numbers and weigh them by their place.",
        "places = torch.arange(1 - m, m, 2)  # m numbers in the last dimension of x\n"
        "mean = 2 * (x.sort(-1).values * places).sum(-1) / m**2  # not (x.unsqueeze(-1) - x.unsqueeze(-2)).abs()",
    ),
    "trace": Rewriting(
        "PD10.product-order",
        "of this product of matrices, {shape} numbers, the diagonal is used",
        "each number on it is one row times one column, and nobody reads the others",
        "Multiply rows and columns one by one and add them up.",
        "each = (a * b.transpose(-1, -2)).sum(-1)  # not (a @ b).diagonal()\n"
        'each = torch.einsum("ij,ij->i", x @ precision, x)  # x precision x of each row',
    ),
    "ignored": Rewriting(
        "PD10.ignored-scores",
        "this line makes {shape} scores, and the loss ignores many rows",
        "a row that is ignored adds nothing to the loss or to any gradient",
        "Pick the rows that count before their scores are made.",
        "counts = labels != -100\nloss = criterion(head(hidden[counts]), labels[counts])  # not of all rows",
        "None for training; who reads all scores elsewhere (an accuracy) has to ask for them.",
    ),
    "picked": Rewriting(
        "PD10.ignored-scores",
        "this line makes {shape} numbers, and a few of their rows are read",
        "nothing else reads these numbers, and each row is one input times the same weights",
        "Pick the rows before the layer.",
        "scores = head(hidden[rows, places])  # not head(hidden)[rows, places]\n"
        "logits = head(hidden[:, -1])  # not head(hidden)[:, -1]",
        "None: the same numbers.",
    ),
    "enlarged": Rewriting(
        "PD10.enlarged-first",
        "this line enlarges to {shape} numbers before a 1x1 convolution",
        "such a convolution mixes the channels of each pixel, which may as well be done before there are more of them",
        "Convolve first, and enlarge what comes out.",
        "out = upsample(conv1x1(x))  # not conv1x1(upsample(x))\n"
        "nn.Sequential(nn.Conv2d(width, channels, 1), nn.Upsample(scale_factor=4))",
    ),
    "edges": Rewriting(
        "PD10.layer-by-edge",
        "this line multiplies {shape} numbers, rows repeated from fewer",
        "a product with joined rows is the sum of the products with each of them, and those can be picked afterwards",
        "Multiply the rows with their part of the weights first, and pick and add what comes out.",
        "a, b = layer.weight.split(width, dim=1)\n"
        "messages = (x @ a.T)[source] + (x @ b.T)[target] + layer.bias\n"
        "# not layer(torch.cat([x[source], x[target]], dim=1))\n"
        "pairs = (x @ a.T)[:, :, None] + (x @ b.T)[:, None] + layer.bias  # of all pairs: nothing is joined",
    ),
    "cut": Rewriting(
        "PD10.picked-then-cut",
        "this line picks {shape} numbers, of which a few rows are read",
        "the others are copied for nothing",
        "Cut the list of rows, and pick those.",
        "rows = torch.randint(len(x), (n,))  # or order[:n]\nbatch = x[rows]  # not x[torch.randperm(len(x))][:n]",
        "None: the same numbers.",
    ),
    "strided": Rewriting(
        "PD10.stride-afterwards",
        "this line convolves to {shape} numbers, of which others skip most",
        "what is read of them lies at even distances, and nothing reads what lies between",
        "Give the convolution that stride.",
        "self.front = nn.Conv1d(1, filters, taps, stride=hop)  # not conv(x)[:, :, ::hop]",
        "None: the same numbers.",
    ),
    "penalty": Rewriting(
        "PD10.penalty-by-hand",
        "this line adds up squares of parameters, {shape} numbers, for a penalty",
        "the backward pass goes through all of them again; an optimizer adds the same to their gradients as it updates "
        "them",
        "Let the optimizer do it.",
        "optimizer = torch.optim.SGD(model.parameters(), lr, weight_decay=2 * penalty)  # not loss + penalty * squares",
        "The loss that is printed is the one without the penalty; Adam takes `weight_decay` as such, AdamW otherwise.",
        "going through them once takes {other_ms}",
    ),
    "grown": Rewriting(
        "PD10.grown-by-cat",
        "this line joins more and more, by copies of up to {shape} numbers",
        "nothing but the next of these calls reads what they make",
        "Collect the parts in a list and join them once.",
        "parts.append(part)  # in the loop\nwhole = torch.cat(parts, dim=1)  # once, after it",
        "None: the same numbers.",
    ),
    "rebuilt": Rewriting(
        "PD10.rebuilt-by-cat",
        "this line copies {shape} numbers to add a few or replace them",
        "most of what it joins is what it has made in the step before",
        "Make room for all of them once, and write the new part in place: over the oldest, when it is full.",
        "queue[at : at + len(keys)] = keys  # after the backward pass; not torch.cat([queue[len(keys):], keys])\n"
        "at = (at + len(keys)) % len(queue)",
        "Rows are no longer in the order of their age; and what a backward pass still needs must not be written to.",
    ),
    "written": Rewriting(
        "PD10.written-by-parts",
        "this line writes parts into a tensor of {shape} one after the other",
        "for each write the backward pass copies the gradients of the whole tensor",
        "Collect the parts in a list and join them once.",
        "parts.append(part)  # in the loop, not whole[:, t] = part\n"
        "whole = torch.stack(parts, dim=1)  # once, after it",
        "None: the same numbers.",
    ),
    "taken-apart": Rewriting(
        "PD10.taken-apart",
        "this line reads parts of a tensor of {shape} one after the other",
        "for each part the backward pass fills a tensor as large as the whole with zeros, and adds it to the others",
        "Take it apart at once.",
        "for part in whole.unbind(dim=1):  # not whole[:, t] for each t; of slices: whole.split(size, dim=1)\n"
        "    state = cell(part, state)",
        "None: the same numbers.",
        "two of these parts take as long as joining the gradients of all, {other_ms}",
    ),
    "columns": Rewriting(
        "PD10.column-lookup",
        "this line looks up columns of a table of {shape}",
        "each number of a column lies in a line of memory of its own, and so does its gradient",
        "Keep the table the other way round, so that what is looked up lies together.",
        "self.table = nn.Parameter(torch.randn(rows, columns, width))  # not (width, rows, columns)\n"
        "entries = self.table[row, column]  # not self.table[:, row, column].t()",
        "Checkpoints hold the table as it was: turn it round as they are loaded (`table.movedim(0, -1)`).",
    ),
    "indexed": Rewriting(
        "PD10.picked-by-index",
        "gradients of rows picked by an index, {shape} numbers, are added up slowly",
        "the backward pass of `x[index]` adds up number by number on one thread, that of `index_select` row by row",
        "Pick them with `index_select`.",
        "rows = x.index_select(0, index)  # not x[index]",
        "Indices must not be negative; gradients are added in another order.",
        is_ill=False,
    ),
    "copied": Rewriting(
        "PD10.needless-copy",
        "this line copies {shape} numbers that nobody changes",
        "in the steps that were watched nothing was written to the copy, or to what it is a copy of, while both were "
        "there",
        "Use the tensor itself.",
        "scores = q @ self.queue  # not q @ self.queue.clone()",
        "Whoever changes the tensor in place before the backward pass needs the copy: autograd raises an error then.",
        "without it nothing takes its place",
    ),
    "diagonal-factor": Rewriting(
        _DIAGONAL,
        "this line factors matrices that are diagonal, {shape} numbers",
        "the factor of such a matrix holds the roots of what is on it",
        _INDEPENDENT,
        _AS_INDEPENDENT,
    ),
    "diagonal-solve": Rewriting(
        _DIAGONAL,
        "this line solves for matrices that are diagonal, {shape} numbers",
        "that is to divide by what is on them",
        _INDEPENDENT,
        _AS_INDEPENDENT,
    ),
    "inverse": Rewriting(
        "PD10.inverse-then-product",
        "this line inverts matrices to multiply with them, {shape} numbers",
        "nothing else reads the inverse, and to solve for the product takes a third of its arithmetic",
        "Solve for the product.",
        "x = torch.linalg.solve(a, b)  # not torch.inverse(a) @ b\n"
        "x = torch.cholesky_solve(b, torch.linalg.cholesky(a))  # of a covariance, whose factor serves logdet too",
    ),
    "triangular-determinant": Rewriting(
        "PD10.triangular-matrices",
        "the determinant of triangular matrices, {shape} numbers, is computed as of any",
        "the determinant of such a matrix is the product of what is on its diagonal",
        "Take it from the diagonal.",
        "log_det = lower.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)  # not torch.slogdet(lower)[1]",
    ),
    "triangular-inverse": Rewriting(
        "PD10.triangular-matrices",
        "triangular matrices, {shape} numbers, are inverted as any others",
        "to solve with such a matrix is to substitute, row by row",
        "Solve with it as it is.",
        "x = torch.linalg.solve_triangular(lower, b, upper=False)  # not torch.inverse(lower) @ b",
    ),
    "top": Rewriting(
        _SORT,
        "this line sorts {shape} numbers, of which a few are used",
        "to find those needs no sort",
        "Take the first few with topk.",
        "values, places = scores.topk(k, dim=1)  # not scores.sort(dim=1, descending=True), then [:, :k]",
        "Of equal numbers others may come first.",
    ),
    "shuffled": Rewriting(
        _SHUFFLE,
        "this line shuffles {shape} numbers, of which a few are used",
        "each step makes a permutation of all of them anew and reads its beginning",
        "Draw as many as are used, or go through one permutation batch by batch.",
        "rows = torch.randint(n, (batch,))  # not torch.randperm(n)[:batch]\n"
        "for rows in torch.randperm(n).split(batch):  # once for each epoch",
        "What is drawn by itself may come twice in a batch: of k numbers out of n about k * k / (2 * n).",
        "so many numbers are drawn in {other_ms}",
    ),
    "chosen": Rewriting(
        _SHUFFLE,
        "NumPy shuffles {shape} numbers here to pick a few of them",
        "without replacement `np.random.choice` makes a permutation of all; a `Generator` draws what it is asked for",
        "Ask a generator of NumPy's newer kind.",
        "rng = np.random.default_rng(seed)  # once\n"
        "rows = rng.choice(n, batch, replace=False)  # not np.random.choice(n, batch, replace=False)",
        "Other numbers come out for the same seed.",
        "a generator takes {other_ms} for as many",
    ),
    "rank": Rewriting(
        _SORT,
        "this line sorts {shape} numbers to find one place in each row",
        "its place is how many are ahead of it",
        "Count the numbers ahead of it.",
        "rank = (scores > scores.gather(1, target.unsqueeze(1))).sum(1)  # from 0; no sort",
        "Of equal numbers none is ahead of the other.",
    ),
    "second-sort": Rewriting(
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
