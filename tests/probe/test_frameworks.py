"""Trainers that own the loop."""

from __future__ import annotations

import pytest

from perfdoctor.recording.base import Site
from perfdoctor.recording.layers import LayerProfile
from perfdoctor.recording.lines import SitesWindow
from perfdoctor.recording.operators import OpsWindow


@pytest.mark.slow
def test_lightning(observe):
    pytest.importorskip("lightning")
    seen = observe("lightning_job.py")
    seen.same()
    seen.healthy()
    steps = seen.rank.steps
    assert seen.bare.code == 0, seen.bare.stderr
    assert len(steps) == 20
    assert set(steps["boundary"]) == {0}
    assert (steps["micro"] == 2).sum() >= 17  # the others hold a validation pass
    assert seen.rank.settings is not None and "lightning" in seen.rank.settings.frameworks
    assert seen.rank.settings.trainer == "lightning"
    assert isinstance(seen.rank.call_sites, SitesWindow)
    places = [line.site for line in seen.rank.call_sites.lines] + [loader.site for loader in seen.rank.loaders]
    assert any(isinstance(place, Site) and place.file.endswith("loops.py") for place in places)
    assert isinstance(seen.rank.ops, OpsWindow) and isinstance(seen.rank.ops.layers, LayerProfile)
    (model,) = [layer for layer in seen.rank.ops.layers.layers if layer.kind == "Net"]
    assert [site and site.function for site in (model.called_at, model.made_at)] == ["training_step", "__init__"]
    assert seen.rank.ops.profile.optimizer_at is not None
    assert seen.rank.ops.profile.optimizer_at.function == "configure_optimizers"


@pytest.mark.slow
def test_transformers_trainer(observe):
    pytest.importorskip("transformers")
    seen = observe("transformers_job.py")
    assert seen.bare.code == seen.probed.code == 0, seen.bare.stderr
    assert seen.probed.stdout.splitlines()[-1] == seen.bare.stdout.splitlines()[-1]
    assert seen.probed.stderr == seen.bare.stderr
    seen.healthy()
    assert len(seen.rank.steps) == 24
    assert seen.rank.settings is not None and seen.rank.settings.trainer == "transformers"
    assert set(seen.rank.steps["micro"]) == {2}
    assert (seen.rank.steps["forward_us"] > 0).all()


def test_accelerate(observe):
    pytest.importorskip("accelerate")
    seen = observe("accelerate_job.py")
    seen.same()
    seen.healthy()
    assert seen.bare.code == 0, seen.bare.stderr
    assert seen.rank.settings is not None and seen.rank.settings.trainer == "accelerate"
    assert len(seen.rank.steps) == 20
    assert set(seen.rank.steps["micro"]) == {2}
