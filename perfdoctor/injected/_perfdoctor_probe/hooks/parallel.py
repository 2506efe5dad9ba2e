"""How a job's work is divided among its ranks: who does the same on other data, who holds another part of the model.

Read once, some steps into the job, from what torch keeps; nothing is hooked for it.
"""

import gc
import sys

import torch


def division(optimizer, model) -> dict:
    """Facts of this rank, as in `recording.parallel`; empty where nobody divides anything.

    `model`: reduced by DistributedDataParallel, or None.
    """
    facts = {}
    data = set() if model is None else set(_ranks(model.process_group))
    groups = _sharded()
    for group in groups:
        mesh = group.mesh_info
        # The mesh is this rank's part of a larger one: those that share the data's gradients. One that has other
        # dimensions too names those that do.
        data |= set(_ranks(mesh.shard_process_group) if mesh.is_spmd_mesh else mesh.mesh.mesh.flatten().tolist())
    if groups:
        facts["shard_bytes"] = [
            sum(one._orig_size.numel() * one.sharded_param.element_size() for one in group.fsdp_params)
            for group in groups
        ]
        facts["resharded"] = sum(group.post_forward_mesh_info is not None for group in groups)
    tensor = _split(optimizer, data)
    if data:
        facts["data"] = _written(data)
    if tensor:
        facts["tensor"] = _written(tensor)
    stages = _stages()
    if stages:
        facts["stages"] = sorted(stage.stage_index for stage in stages)
        facts["of_stages"] = max(stage.num_stages for stage in stages)
    return facts


def _written(ranks: "set[int]") -> str:
    """Short also for thousands: `0-3`, `0-6/2`; what is no such row by commas."""
    first, last = min(ranks), max(ranks)
    step = (last - first) // (len(ranks) - 1) if len(ranks) > 1 else 0
    if len(ranks) < 3 or ranks != set(range(first, last + 1, step or 1)):
        return ",".join(map(str, sorted(ranks)))
    return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"


def _ranks(group) -> "list[int]":
    return torch.distributed.get_process_group_ranks(group)


def _sharded() -> list:
    """Groups of parameters that `fully_shard` gathers together."""
    module = sys.modules.get("torch.distributed._composable_state")
    states = () if module is None else list(module._module_state_mapping.values())
    groups = []
    for reference in states:
        state = reference()
        groups += [group for group in getattr(state, "_fsdp_param_groups", ()) if group.fsdp_params]
    return groups


def _split(optimizer, data: "set[int]") -> "set[int]":
    """Ranks that hold other parts of the same parameters, and not for the sake of memory alone."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or optimizer is None:
        return set()
    found = set()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not isinstance(parameter, module.DTensor):
                continue
            mesh = parameter.device_mesh
            for dimension, placement in enumerate(parameter.placements):
                if placement.is_shard():
                    ranks = set(_ranks(mesh.get_group(dimension)))
                    found |= set() if ranks <= data else ranks
    return found


def _stages() -> list:
    """Of a pipeline: those that this rank computes. Looking for them takes 10 ms per 100,000 objects."""
    module = sys.modules.get("torch.distributed.pipelining.stage")
    if module is None:
        return []
    return [one for one in gc.get_objects() if issubclass(type(one), module._PipelineStageBase)]
