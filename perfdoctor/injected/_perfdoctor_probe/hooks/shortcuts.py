"""The hooks of an ordinary training step, each in one frame.

In a plain loop of 1 ms steps, empty frames in these places cost 2 to 6 us a step. Through guard, loop and timeline
a step took 45 frames of ours; like this it takes 7, for half to three quarters of the CPU time. `Loop.quick` says
when a step is ordinary: one thread trains it with an optimizer, and no hook has failed.
Whatever else there may be to do, a hook leaves to the methods of `Loop` and `Loading`, and it takes the same
clock readings as they do: `tests/probe/test_shortcuts.py` compares the two. The calls of modules are in `discovery`.
"""

import time
from _thread import get_ident

from ..timeline import BACKWARD, FORWARD, INPUT, LOSS, OPTIMIZER, OTHER, PARTS
from . import closures

_clock = time.perf_counter_ns


def optimizer_hooks(loop, guarded) -> tuple:
    """What runs before and after each optimizer's `step`; the first may give it another closure."""
    apart = closures.apart(loop, guarded)
    began_slowly = guarded("optimizer", loop.optimizer_began)
    ended_slowly = guarded("optimizer", loop.optimizer_ended)
    announce = guarded("optimizer", loop.announce)

    def began(optimizer, args, kwargs) -> "tuple | None":
        line = loop.timeline
        stack = line.stack
        if loop.quick != get_ident() or stack[-1] == LOSS:
            began_slowly(optimizer, args, kwargs)
        else:
            try:
                now = _clock()
                line.spent[stack[-1]] += now - line.mark
                line.mark = now
                stack.append(OPTIMIZER)
                line.events += 1
            except Exception as error:
                guarded.caught("optimizer", error)
        return apart(args, kwargs) if kwargs or len(args) > 1 else None

    def ended(optimizer, args, kwargs) -> None:
        line = loop.timeline
        stack = line.stack
        usual = id(optimizer) == loop.anchor and not loop.others and len(stack) == 2 and stack[1] == OPTIMIZER
        if loop.quick != get_ident() or not usual:
            ended_slowly(optimizer, args, kwargs)
            return
        try:
            now = _clock()
            spent = line.spent
            spent[stack.pop()] += now - line.mark
            line.rows.append((now - line.boundary_ns, spent, line.micro))
            line.spent = [0] * PARTS
            line.mark = line.boundary_ns = now
            line.micro = 0
            line.step += 1
            loop.inside_forward = False
        except Exception as error:
            guarded.caught("optimizer", error)
            return
        if now >= loop.due_ns:
            announce(line)

    return began, ended


def backward(loop, guarded, original):
    """A stand-in for what runs a backward pass, `original`."""
    began_slowly = guarded("backward", loop.backward_began)
    failed = guarded("backward", loop.backward_failed)
    ended_slowly = guarded("backward", loop.backward_ended)

    def run_backward(*args, **kwargs):
        line = loop.timeline
        stack = line.stack
        if loop.quick != get_ident():
            if not began_slowly(args, kwargs.get("accumulate_grad", False)):
                return original(*args, **kwargs)
        else:
            try:
                now = _clock()
                spent = line.spent
                spent[stack[-1]] += now - line.mark
                line.mark = now
                if stack[-1] == LOSS:
                    # It was the loss: a backward pass follows.
                    stack.pop()
                    spent[FORWARD] += spent[LOSS]
                    spent[LOSS] = 0
                stack.append(BACKWARD)
                line.events += 1
                loop.eval_with_grad_ns = 0
            except Exception as error:
                guarded.caught("backward", error)
                return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            failed()
            raise
        if loop.reductions:
            loop.pass_reduced()
        if loop.quick != get_ident() or loop.step_pending or stack[-1] != BACKWARD:
            ended_slowly()
            return result
        try:
            now = _clock()
            line.spent[BACKWARD] += now - line.mark
            line.mark = now
            stack.pop()
        except Exception as error:
            guarded.caught("backward", error)
        return result

    return run_backward


def following(loop, loading, guarded, original, with_workers):
    """A stand-in for the `__next__` of a loader's iterator, `original`; `with_workers` is the class that has some."""
    wanted = guarded("batch", loop.batch_wanted)
    arrived = guarded("batch", loading.arrived)
    gave_up = guarded("iterator", loop.iterator_arrived)

    def depth(iterator) -> int:
        # Batches ready when the loop asks; -1 without workers, or where the queue cannot tell.
        return iterator._data_queue.qsize() + sum(len(task) == 2 for task in iterator._task_info.values())

    depth = guarded("depth", depth)

    def __next__(self):
        line = loop.timeline
        stack = line.stack
        if loop.quick != get_ident() or len(stack) != 1:
            began = wanted()
            if not began:
                return original(self)
        else:
            try:
                began = _clock()
                line.spent[OTHER] += began - line.mark
                line.mark = began
                stack.append(INPUT)
                line.events += 1
            except Exception as error:
                guarded.caught("batch", error)
                return original(self)
        known = loop.drawing = loading.iterators.get(id(self))
        ready = depth(self) if isinstance(self, with_workers) else None
        try:
            batch = original(self)
        except BaseException:
            gave_up()
            raise
        if (
            known is None
            or known[2] < 0
            or loop.quick != get_ident()
            or stack[-1] != INPUT
            or (loading.watches_shapes and loop.batches & 7 == 7)
        ):
            arrived(self, batch, began, ready)
            return batch
        try:
            now = _clock()
            line.spent[INPUT] += now - line.mark
            line.mark = now
            stack.pop()
            loop.batches += 1
            if loop.forwards == 0:
                line.micro += 1
            loop.samples += known[2]
            loading.rows.append(
                (
                    known[0],
                    line.step,
                    now - began,
                    -1 if ready is None else ready,
                    0,
                    loading.transport_ns,
                    loading.transport_bytes,
                )
            )
            loading.transport_ns = loading.transport_bytes = 0
        except Exception as error:
            guarded.caught("batch", error)
        return batch

    return __next__
