"""Which ranks have a finding, in words."""

from __future__ import annotations

import pytest
from samples import healthy, with_

from perfdoctor.diagnosis.whose import whose

NODES = {0: "gpu-a", 1: "gpu-a", 2: "gpu-b", 3: "gpu-b", 4: "gpu-c"}


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ({0, 1, 2, 3, 4}, "all ranks"),
        ({3}, "rank 3 on gpu-b only"),
        ({4}, "rank 4 on gpu-c only"),
        ({2, 3}, "all ranks of gpu-b"),
        ({0, 1, 2, 3}, "all ranks of gpu-a and gpu-b"),
        ({1, 2}, "ranks 1 and 2"),
    ],
)
def test_a_node_that_is_ill_is_told_as_a_node(ranks: set[int], words: str) -> None:
    everyone = [with_(healthy(), rank=rank, job__node=node) for rank, node in NODES.items()]
    assert whose([one for one in everyone if one.rank in ranks], everyone) == words
