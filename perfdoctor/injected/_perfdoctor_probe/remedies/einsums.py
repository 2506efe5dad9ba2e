"""Attention written as `torch.einsum`: which of its factors is what.

`b h i d, b h j d -> b h i j` are queries times keys, `b h i j, b h j d -> b h i d` the result times values, in any
order of the letters in which keys come last in the first, as the softmax over them wants it.
"""

import torch

_SPARE = "VWXYZ"
"""Letters for the dimensions of an ellipsis."""


def scores(equation, queries, keys) -> "tuple | None":
    """Queries and transposed keys whose product is the `einsum`; None where it is another sum."""
    if not all(
        type(one) is torch.Tensor and one.is_floating_point() and one.dim() in (3, 4) for one in (queries, keys)
    ):
        return None
    terms = _terms(equation, queries.dim(), keys.dim())
    if terms is None:
        return None
    first, second, result = terms
    batch, row, column = result[:-2], result[-2:-1], result[-1:]
    width = [letter for letter in first if letter not in result]
    if len(width) != 1 or set(first) != {*batch, row, *width} or set(second) != {*batch, column, *width}:
        return None
    return (
        queries.permute([first.index(letter) for letter in (*batch, row, *width)]),
        keys.permute([second.index(letter) for letter in (*batch, *width, column)]),
    )


def attended(equation, dims: int, values) -> "tuple | None":
    """How to order the dimensions of values for attention, and those of its result for the `einsum`; None where it is
    another sum. `dims`: of the scores."""
    terms = _terms(equation, dims, values.dim())
    if terms is None:
        return None
    first, second, result = terms
    batch, row, column = first[:-2], first[-2:-1], first[-1:]
    width = [letter for letter in second if letter not in first]
    if len(width) != 1 or set(second) != {*batch, column, *width} or set(result) != {*batch, row, *width}:
        return None
    made = (*batch, row, *width)
    return [second.index(letter) for letter in (*batch, column, *width)], [made.index(letter) for letter in result]


def _terms(equation, *dims: int) -> "list[str] | None":
    """The letters of the two factors and of the result, one for each dimension; None where that is not so plain."""
    if not isinstance(equation, str):
        return None
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2:
        return None
    spare = {dim - len(term.replace("...", "")) for term, dim in zip(terms, dims) if "..." in term}
    if len(spare) > 1 or any(not 0 <= count <= len(_SPARE) for count in spare) or set(equation) & set(_SPARE):
        return None
    letters = _SPARE[: spare.pop()] if spare else ""
    terms = [term.replace("...", letters) for term in (*terms, result)]
    plain = all(term.isalpha() and len(set(term)) == len(term) for term in terms)
    return terms if plain and [len(term) for term in terms[:2]] == list(dims) and len(terms[2]) == dims[0] else None
