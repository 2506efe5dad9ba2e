"""Two ranks over gloo save what they have with `torch.distributed.checkpoint`, at once and in the background."""

import gc
import tempfile

import facts
import loops
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint


def train() -> None:
    facts.seed()
    shared = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [""]
    dist.broadcast_object_list(shared)
    model, optimizer, criterion = loops.setup()
    under_way = None
    for step, (x, y) in enumerate(loops.data()):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        if step % 6 == 3:
            checkpoint.save({"model": model.state_dict()}, checkpoint_id=f"{shared[0]}/{step}")
        if step % 6 == 5:
            under_way = checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=f"{shared[0]}/{step}")
            under_way.result()
    last = {"model": model.state_dict()}
    checkpoint.load(last, checkpoint_id=f"{shared[0]}/5")
    if dist.get_rank() == 0:
        print(facts.digest(last["model"].values()), step)


dist.init_process_group("gloo")
train()
gc.collect()
dist.destroy_process_group()
