"""OpenBLAS's pools of threads beside torch's team."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from perfdoctor.injected._perfdoctor_probe import blas
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.libraries import BlasThreads

ROOT = Path(blas.__file__).parents[3]


def _of_a_process(code: str, threads: int) -> str:
    """What it prints; the number of threads of a pool is read when its library is loaded."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_pools_are_found_with_their_threads_which_can_be_set_and_have_work() -> None:
    assert isinstance(np.linalg.eigh(np.eye(2)), tuple)  # loads the library
    found = blas.pools()
    assert found
    for pool in found:
        before = pool.count()
        pool.set(1)
        assert pool.count() == 1
        pool.set(before)
        assert pool.can_work
        pool.work()


USE = """
    import time
    import numpy as np
    from perfdoctor.injected._perfdoctor_probe import blas
    time.sleep(0.5)  # threads that have just been made spin as well
    use, x = blas.PoolUse(), np.random.rand(300, 300)
    for _ in range({products}):
        x @ x
    time.sleep(0.2)
    rows = use.rows()
    print(len(rows), sum(row["threads"] for row in rows), sum(row["cores"] for row in rows) > 0.05)
"""


@pytest.mark.parametrize(
    ("threads", "products", "seen"), [(2, 100, "1 2 True"), (2, 0, "1 2 False"), (1, 100, "0 0 False")]
)
def test_what_its_threads_use_is_told_from_others(threads: int, products: int, seen: str) -> None:
    assert _of_a_process(USE.format(products=products), threads).strip() == seen


def test_a_thread_that_never_rests_leaves_it_unknown() -> None:
    busy = """
        import threading, time
        import numpy as np
        from perfdoctor.injected._perfdoctor_probe import blas
        blas._LOOKS = 1
        threading.Thread(target=lambda: [np.sort(np.random.rand(1 << 22)) for _ in range(8)]).start()
        print(blas.PoolUse().rows())
    """
    assert _of_a_process(busy, 2).strip() == "[]"


def test_the_remedy_gives_each_pool_one_thread_and_takes_it_back() -> None:
    tried = """
        import numpy, torch
        from perfdoctor.injected._perfdoctor_probe import blas
        from perfdoctor.injected._perfdoctor_probe.remedies.libraries import BlasThreads
        remedy = BlasThreads(None)
        counts = [[pool.count() for pool in blas.pools()]]
        for act in (remedy.apply, remedy.withdraw):
            act()
            counts.append([pool.count() for pool in blas.pools()])
        print(counts)
    """
    assert _of_a_process(tried, 2).strip() == "[[2], [1], [2]]"


def test_without_such_a_library_there_is_nothing_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "pools", list)
    with pytest.raises(UnsuitableError, match="no OpenBLAS"):
        BlasThreads(None).apply()
