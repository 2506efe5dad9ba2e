"""Launches are shared, and a test that launches is run again where the machine disturbed it.

What was disturbed at each try, while another worker's tests ran beside it, gives the whole run an exit code of its own:
`make` then runs those tests once more, alone.
"""

from __future__ import annotations

from collections.abc import Generator

import hypothesis
import pytest
from disturbance import DisturbedError, Watch
from launches import Launches

# A busy machine is no reason to fail an example, and no run fails by one that others do not draw: all draw the same.
# `pytest --hypothesis-profile exploring` draws new ones.
hypothesis.settings.register_profile(
    "exploring", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("alike", hypothesis.settings.get_profile("exploring"), derandomize=True)
hypothesis.settings.load_profile("alike")

LAUNCHING_FIXTURES = {"launches", "perfdoctor", "observe"}
_LAUNCHES = pytest.StashKey[Launches]()
_WATCH = pytest.StashKey[Watch]()
DISTURBED = 75
"""The exit code of a run in which nothing failed but by `DisturbedError`: sysexits' EX_TEMPFAIL."""


class _Failures:
    """Of the whole run, as the process that hands out the tests hears of them."""

    def __init__(self) -> None:
        self.disturbed = self.others = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            disturbed = crash is not None and DisturbedError.__name__ in crash.message.partition(":")[0]
            self.disturbed += disturbed
            self.others += not disturbed

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self.disturbed and not self.others:
            session.exitstatus = DISTURBED


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures())


@pytest.fixture(scope="session")
def launches(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """Of the whole session: pytest-xdist's workers have a folder each, side by side."""
    base = tmp_path_factory.getbasetemp()
    shared = Launches((base.parent if hasattr(request.config, "workerinput") else base) / "launches")
    request.config.stash[_LAUNCHES] = shared
    return shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LAUNCHING_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("e2e")
    # With `--dist loadfile` whole files are handed out in this order: what takes long first, so that no worker is left
    # alone with it in the end.
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_WATCH] = Watch()
    if _LAUNCHES in item.config.stash:
        item.config.stash[_LAUNCHES].begin()
    return (yield from _told_from_the_machines_doing(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _told_from_the_machines_doing(item))


def _told_from_the_machines_doing(item: pytest.Item) -> Generator[None, None, None]:
    """Failures of tests that launch, on a machine that was disturbed, are `DisturbedError`s: what was not found in time
    is a failed assertion, a missing key, a tuple of none or a time that is up, as the test happens to ask for it."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as failure:
        if item.get_closest_marker("e2e") is None:
            raise
        shared = item.config.stash.get(_LAUNCHES, None)
        during, before = item.stash[_WATCH].disturbance(), shared.forget_disturbed() if shared else ""
        if not during and not before:
            raise
        raise DisturbedError(f"{during or before} during this test or what it looks at") from failure
