"""The job as a whole, from the recordings of its nodes: how it ended, and what of it was not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ..launch.masking import masked
from ..recording.model import ProcessRecording
from ..recording.nodes import Node, starts_before
from .compilation import never_ran
from .model import EndKind, Job, JobEnd, JobNode, option, ranks_in_words
from .nodes import nodes as machine_names

Ranks = Sequence[tuple[Node, ProcessRecording]]

_GRAVEST_FIRST: tuple[EndKind, ...] = (
    "crashed",
    "killed",
    "timeout",
    "interrupted",
    "unknown",
    "running",
    "stopped",
    "finished",
)
"""Of the ends that the job met on its nodes, the first is the job's: where it stopped elsewhere, that one made it."""
_GRAVITY = {kind: place for place, kind in enumerate(_GRAVEST_FIRST)}


def names(nodes: Sequence[Node], ranks: Ranks) -> Mapping[Node, str]:
    """By which reports call the nodes; "" for the only one, also where it has a launcher for each rank."""
    speakers = {node: _speaker(node, ranks) for node in nodes}
    told = iter(machine_names([one for one in speakers.values() if one is not None]))
    return {node: "" if one is None else next(told) for node, one in speakers.items()}


def _speaker(node: Node, ranks: Ranks) -> ProcessRecording | None:
    """A rank where there is one: only those know the node's number."""
    of_node = [process for other, process in ranks if other is node]
    return next(iter([*of_node, *node.recording.processes]), None)


def build(node: Node, nodes: Mapping[Node, str], ranks: Ranks) -> Job:
    """As the ranks of one node know it."""
    facts, processes = node.recording.facts, node.recording.processes
    with_torch = [p for p in processes if p.torch is not None and p.torch.version]
    lead = next(iter([*(p for one, p in ranks if one is node), *with_torch]), None)
    torch, settled = (lead.torch, lead.settings) if lead else (None, None)
    options = settled.options if settled else ()
    roles = [process.role for one in nodes for process in one.recording.processes]
    return Job(
        command=facts.command,
        cwd=facts.cwd,
        python_version=lead.header.python if lead else "",
        torch_version=torch.version if torch else "",
        torch_build=_torch_build(torch.cuda, torch.hip) if torch else "",
        started=facts.started,
        end=_end(nodes),
        world_size=max((rank.world_size for _, rank in ranks), default=1),
        local_ranks=sum(one.machine_id == node.machine_id for one, _ in ranks),
        workers=roles.count("worker") + sum(one.recording.unread_workers for one in nodes),
        helpers=len(roles) - len(ranks) - roles.count("worker"),
        frameworks=settled.frameworks if settled else (),
        trainer=settled.trainer if settled else "",
        accumulation_at=option(options, "accumulate_grad_batches", "gradient_accumulation_steps"),
        batch_at=option(options, "per_device_train_batch_size", "per_gpu_train_batch_size"),
        options=options,
        environment=tuple(sorted(facts.environment.items())),
        compiled=bool(lead and settled and settled.compiled and not never_ran(lead)),
        compile_lacks=settled.compile_lacks if settled else None,
        nodes=_nodes(nodes, ranks),
        node=nodes[node],
    )


def _nodes(nodes: Mapping[Node, str], ranks: Ranks) -> tuple[JobNode, ...]:
    """One for each name; none where there is none."""
    by_name: dict[str, dict[Node, str]] = {}
    for node, name in nodes.items():
        by_name.setdefault(name, {})[node] = ""
    return tuple(_node(name, some, ranks) for name, some in by_name.items() if name)


def _node(name: str, launchers: Mapping[Node, str], ranks: Ranks) -> JobNode:
    of_node = [process for one, process in ranks if one in launchers]
    processes = [*of_node, *(process for one in launchers for process in one.recording.processes)]
    torch = next((process.torch for process in processes if process.torch and process.torch.version), None)
    machine = next(iter(launchers)).machine
    return JobNode(
        name=name,
        ranks=tuple(process.rank for process in of_node),
        end=_end(launchers),
        python_version=processes[0].header.python,
        torch_version=torch.version if torch else "",
        torch_build=_torch_build(torch.cuda, torch.hip) if torch else "",
        cpu_model=machine.cpu_model,
        usable_cpus=machine.usable_cpus,
    )


def _end(nodes: Mapping[Node, str]) -> JobEnd:
    """The gravest of all nodes'."""
    node, name = min(nodes.items(), key=lambda pair: _GRAVITY.get(_kind(pair[0]), len(_GRAVITY)))
    facts = node.recording.facts
    where = f"on {name}" if name and _kind(node) not in ("stopped", "finished") else ""
    detail = " ".join(filter(None, (facts.detail, where)))
    return JobEnd(_kind(node), facts.exit_code, facts.signal, detail, _failure(nodes, _kind(node)))


def _kind(node: Node) -> EndKind:
    return cast(EndKind, node.recording.facts.end)


def _failure(nodes: Mapping[Node, str], kind: EndKind) -> str:
    """The first line of the first failure, without secrets. What a worker of Ray's raised has ended nothing where the
    training was started anew, and ended well."""
    went_on = kind in ("finished", "stopped")
    failed = [process for node in nodes for process in node.recording.processes if process.failure is not None]
    first = _first([process for process in failed if process.ray is None or not went_on])
    return _told(first) if first is not None else ""


def _first(failed: Sequence[ProcessRecording]) -> ProcessRecording | None:
    """One that lost another rank only where all have."""
    return min(failed, key=lambda process: process.failure is None or process.failure.is_of_a_peer, default=None)


def _told(failed: ProcessRecording) -> str:
    error = failed.failure.error if failed.failure is not None else ""
    return " ".join(masked(error.split("\n", 1)[0].split(" ")))


def _torch_build(cuda: str | None, hip: str | None) -> str:
    if cuda:
        return "cu" + cuda.replace(".", "")
    return f"rocm{hip}" if hip else "cpu"


def notes(nodes: Mapping[Node, str], ranks: Ranks) -> tuple[str, ...]:
    """What of the job is not in its recordings, as clauses."""
    last = _last_attempt(nodes)
    earlier = (*_earlier_attempts(last), *_failed_before(nodes, ranks, last))
    return (*_missing_ranks(nodes, ranks), *_without_end(nodes, ranks), *earlier)


def _missing_ranks(nodes: Mapping[Node, str], ranks: Ranks) -> list[str]:
    world = max((process.world_size for _, process in ranks), default=0)  # nobody knows, where nobody took a step
    missing = set(range(world)) - {process.rank for _, process in ranks}
    if not missing:
        return []
    started = [p for node in nodes for p in node.recording.processes if "RANK" in p.environment and p.role != "worker"]
    idle = missing & {process.rank for process in started}
    unseen = missing - idle
    told = []
    if unseen:
        told.append(
            f"{ranks_in_words(unseen)} of {world} {_is(unseen)} not in it: nobody recorded {_them(unseen)}. Start "
            "perfdoctor on every node, with --runs in a directory that all of them share"
        )
    if idle:
        told.append(f"{ranks_in_words(idle)} of {world} took no step")
    return told


def _is(ranks: set[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _them(ranks: set[int]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _without_end(nodes: Mapping[Node, str], ranks: Ranks) -> list[str]:
    if len(nodes) == 1:
        return []  # it is told where the job's end is
    words = {
        "unknown": "stops without an end: perfdoctor was killed there, or the machine was lost",
        "running": "was still being written when this was read: report it again later",
    }
    found = []
    for node, name in nodes.items():
        here = [process.rank for one, process in ranks if one is node]
        if _kind(node) in words:
            of_node = name or (ranks_in_words(here) if here else "one launcher")
            found.append(f"the recording of {of_node} {words[_kind(node)]}")
    return found


def _last_attempt(nodes: Mapping[Node, str]) -> int:
    """From 0."""
    return max((count for node in nodes for count in starts_before(node.recording).values()), default=0)


def _earlier_attempts(last: int) -> list[str]:
    if not last:
        return []
    return [f"the job was started {last + 1} times, and this is about the last start"]


def _failed_before(nodes: Mapping[Node, str], ranks: Ranks, last: int) -> list[str]:
    """What ended an earlier attempt."""
    counts = {header: count for node in nodes for header, count in starts_before(node.recording).items()}
    judged = {process.header for _, process in ranks}
    trainings = {process.ray.run for _, process in ranks if process.ray is not None}

    def earlier(process: ProcessRecording) -> bool:
        if process.ray is not None:
            return process.ray.run in trainings
        return counts[process.header] < last

    others = [one for node in nodes for one in node.recording.processes if one.role == "rank"]
    failed = [one for one in others if one.failure is not None and one.header not in judged and earlier(one)]
    first = _first(failed)
    return [] if first is None else [f"an earlier attempt failed: rank {first.rank} raised {_told(first)}"]
