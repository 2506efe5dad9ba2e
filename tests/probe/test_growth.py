"""What a job keeps more and more of is named with its line, and none of the job's own code runs for it."""

from __future__ import annotations

import pytest
from observing import Observed, Observer, line_of

from perfdoctor.recording.growth import GrowingContainer
from perfdoctor.recording.lines import LinesWindow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(450)]


@pytest.fixture
def kept(observe: Observer) -> Observed:
    return observe("keeps.py", windows="lines")


def _containers(kept: Observed) -> dict[str, GrowingContainer]:
    assert kept.rank.growth is not None
    return {container.name: container for container in kept.rank.growth.containers}


def test_the_job_is_the_same_and_speaks_of_nothing(kept: Observed) -> None:
    kept.same()
    kept.healthy()
    assert "len" not in kept.probed.stdout and "property" not in kept.probed.stdout


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("graphs", "list", "graphs.append(loss)"),
        ('log["loss"]', "list", 'log["loss"].append(loss.item())'),
        ("loud.features", "list", "loud.features.append((step, x.clone()))"),
        ("slotted.pairs", "dict", "slotted.pairs[step] = x[:1]"),
        ("seen", "set", "seen.add(step)"),
    ],
)
def test_a_container_is_named_with_the_line_that_adds_to_it(kept: Observed, name: str, kind: str, line: str) -> None:
    found = _containers(kept)[name]
    assert (found.kind, found.per_step) == (kind, pytest.approx(1.0))
    assert line_of(found.site) == line
    assert line in [line_of(site) for site in found.uses]


def test_what_is_bounded_or_stays_as_it_is_does_not_grow(kept: Observed) -> None:
    assert _containers(kept).keys() == {"graphs", 'log["loss"]', "loud.features", "slotted.pairs", "seen"}


def test_elements_are_told_by_what_they_keep_alive(kept: Observed) -> None:
    found = _containers(kept)
    assert found["graphs"].graphs == 1.0 and found['log["loss"]'].tensors == 0.0
    assert found["loud.features"].tensors == 1.0 and found["loud.features"].bytes_per_step == 4 * 8 * 4


def test_a_graph_is_named_by_the_tensor_that_carries_it(kept: Observed) -> None:
    assert kept.rank.growth is not None
    (graph,) = kept.rank.growth.graphs
    assert graph.name == "average" and line_of(graph.site).startswith("average = average + loss")
    assert graph.per_step >= 1.0


def test_a_graph_of_later_steps_alone_is_not_carried(kept: Observed) -> None:
    """That of `unrolled` is deeper at every census too."""
    assert kept.rank.growth is not None and "unrolled" not in {graph.name for graph in kept.rank.growth.graphs}


@pytest.mark.parametrize(
    ("name", "line", "bytes_per_step"),
    [
        ("bank", "bank = torch.cat([bank, x[:1, :3]])", 12),
        ("returns", "returns = np.append(returns, far.sum().item())", 8),
        ("keeper.queue", "self.queue = torch.cat(", 128),
        ("tally", "tally = torch.unique(torch.cat([tally, torch.tensor([step * 37 % 1009])]))", 8),
    ],
)
def test_a_tensor_that_carries_on_what_it_held_is_named_with_the_line_that_makes_it_larger(
    kept: Observed, name: str, line: str, bytes_per_step: int
) -> None:
    assert kept.rank.growth is not None
    found = {tensor.name: tensor for tensor in kept.rank.growth.larger_tensors}[name]
    assert line_of(found.site).startswith(line) and found.bytes_per_step == bytes_per_step


def test_what_is_computed_from_a_tensor_is_named_too(kept: Observed) -> None:
    assert kept.rank.growth is not None
    (bank,) = (tensor for tensor in kept.rank.growth.larger_tensors if tensor.name == "bank")
    assert "returns = np.append(returns, far.sum().item())" in [line_of(site) for site in bank.uses]


def test_longer_inputs_are_no_tensor_that_is_kept(kept: Observed) -> None:
    """`inputs` is padding, and `places` starts as it did; neither is given what it was."""
    assert kept.rank.growth is not None
    assert {tensor.name for tensor in kept.rank.growth.larger_tensors} == {"bank", "returns", "keeper.queue", "tally"}


def test_hooks_that_pile_up_are_named_with_their_owner_and_the_line_that_registers_them(kept: Observed) -> None:
    assert kept.rank.growth is not None
    found = {hooks.registered_by: hooks for hooks in kept.rank.growth.hooks}
    assert found.keys() == {"register_forward_hook", "register_hook", "register_forward_pre_hook"}
    forward, gradient = found["register_forward_hook"], found["register_hook"]
    assert found["register_forward_pre_hook"].per_step == pytest.approx(1 / 30, rel=0.3)
    assert (forward.name, forward.owners, forward.per_step) == ("watched.0", 1, pytest.approx(1.0))
    assert line_of(forward.site).startswith("watched[0].register_forward_hook(")
    assert forward.passed_to == ("hook",) and "watched(x)" in [line_of(site) for site in forward.uses]
    assert gradient.name == "weight" and line_of(gradient.site) == "weight.register_hook(note)"


def test_hooks_that_are_the_same_are_told_from_those_that_are_functions_of_their_own(kept: Observed) -> None:
    """Each of `watched[0]` keeps what it sees elsewhere."""
    assert kept.rank.growth is not None
    found = {hooks.registered_by: hooks for hooks in kept.rank.growth.alike_hooks}
    assert found.keys() == {"register_hook", "register_forward_pre_hook"}
    gradient = found["register_hook"]
    assert gradient.times > 20 and gradient.grows and gradient.owners == 1
    assert line_of(gradient.site) == "weight.register_hook(note)" and line_of(gradient.function).startswith("def note")


def test_handlers_that_write_to_the_same_file_are_counted_by_logger(kept: Observed) -> None:
    assert kept.rank.growth is not None
    (found,) = kept.rank.growth.alike_handlers
    epochs = kept.rank.growth.step // 30 + 1  # until the last census: the third, or the fifth
    assert (found.logger, found.kind, found.times) == ("journal", "FileHandler", epochs)
    assert line_of(found.site).startswith('logging.getLogger("journal").addHandler(')


@pytest.mark.parametrize(
    ("name", "is_dataset", "line", "uses"),
    [
        ("louder", False, "shout = louder(shout)", ["return function(x) + 1"]),
        ("ConcatDataset", True, "pool = ConcatDataset([pool, TensorDataset(x)])", []),
    ],
)
def test_what_is_wrapped_again_and_again_is_named_with_the_line_that_does(
    kept: Observed, name: str, is_dataset: bool, line: str, uses: list[str]
) -> None:
    assert kept.rank.growth is not None
    found = {wrapped.name: wrapped for wrapped in kept.rank.growth.wrapped}[name]
    assert found.is_dataset == is_dataset and found.per_step == pytest.approx(1.0)
    assert line_of(found.site) == line and [line_of(site) for site in found.uses] == uses


def test_lines_are_timed_once_more_after_something_has_grown(kept: Observed) -> None:
    first, later = kept.rank.code_lines, kept.rank.later_lines
    assert isinstance(first, LinesWindow) and isinstance(later, LinesWindow)
    assert later.first_step > first.first_step


def test_checkpoints_are_told_with_bytes_and_contents(kept: Observed) -> None:
    saves = [call for call in kept.rank.calls if call.kind == "save"]
    assert sum(call.count for call in saves) == 8  # the last one by safetensors
    assert all(call.bytes > 4_000 for call in saves if line_of(call.site).startswith("torch.save"))
    held = kept.rank.saved[0]
    assert held.library == "torch.serialization" and held.us > 0 and held.device_bytes == 0
    assert 0 < held.copied_bytes <= held.storage_bytes
    assert held.others == ("Slotted",) and held.storage_bytes - held.tensor_bytes == pytest.approx(999 * 4)
