"""The update and what happens around it: the optimizer, clipping, norms, averages, zeroing.

What it looks at
----------------
On a CPU one update of the job's optimizer, timed as it is, with `foreach=True` and with `fused=True`, and each of these
with parameters of the same options in one group, where many groups have the same; and what the shapes of its parameters
take one by one and together: norms that are read, averages in place, gradients filled with zeros or let go. How often
each line steps a learning-rate schedule, or passes the data through an averaged model (`update_bn`), and how long that
takes. What an optimizer's lines factorize (`eigh`, `svd`, an inverse). Parameters that have a gradient after an update
and are in no optimizer, or in one at a learning rate of 0, and the model's own passes, run again after the last step
with these frozen and not. Gradients that `zero_grad()` takes away before an optimizer or anybody else reads them, and
what each operator of the backward passes that fill them takes; where no module is called, also those of tensors in no
optimizer that nobody reads at all, and the line that recorded their graph. In a step or two, the lines between the
passes and in an optimizer of the job's own that run once for each parameter: loops over `model.parameters()`,
`clip_grad_norm_` for each, copies of the model's `state_dict`, `copy.deepcopy(model)`. Calls of `torch.autograd.grad`
for derivatives of an output of which others were asked for in the same step: where one is met first its graph is gone
through a few times more, one by one and together. Operators of backward passes that run for a part of the graph which
an earlier pass of the same step has gone through.

Of a trace: how many kernels the optimizer launches, and the device's idle time meanwhile.

Why it costs time
-----------------
Each operator pays 5 to 20 us of Python and dispatch, and a model has hundreds of parameters, most of them small. An
optimizer that is not fused issues ten operators and more for every parameter: for 100 small ones 2.9 ms instead of 0.5
ms. A fused or foreach optimizer does so for each group of parameters: with a group for each of 122 parameters, as code
from Caffe's days makes them for a learning rate or a weight decay of each, a step took 1.3 times as long. Norms that
are read one by one, an average of the weights, a step rule written by hand come beside it in every step. A gradient
that no optimizer uses costs a matrix product or a convolution of the backward pass for each layer, and where nothing
ahead of a layer learns, all of the backward pass through it. A loss that reaches a model that it does not teach fills
the gradients of that one too: a critic's, where `generator(noise)` is not detached, goes all the way back through the
generator, whose gradients are zeroed before its own turn. Derivatives of one output that are asked for one by one go
through all of its graph for each, and where a loss needs them, the backward pass goes through as many graphs: in a
network for shallow water, of width 96 at 1,000 points, 4 of 7 such calls a step were needless. Three losses of one
network that each go back by themselves, with `retain_graph=True`, go through all that they share three times.

Example
-------
    norms = [p.grad.norm().item() for p in model.parameters()]
    p.register_hook(lambda gradient: norms.append(gradient.norm().item()))   # for each p
    for average, p in zip(ema.parameters(), model.parameters()):
        average.mul_(0.999).add_(p, alpha=0.001)
    groups = [{"params": [p], "weight_decay": 0.01 * (p.ndim > 1)} for p in model.parameters()]   # two would do
    optimizer = torch.optim.AdamW(model.head.parameters())   # and the rest of the model was never frozen
    groups = [{"params": backbone, "lr": 0.0}, {"params": head, "lr": 1e-3}]   # which freezes nothing
    u_t, u_x = (torch.autograd.grad(u.sum(), by, create_graph=True)[0] for by in (t, x))   # one call gives both
    critic(generator(noise)).mean().backward()               # in the critic's turn, without detach()
    Shampoo(model.parameters(), update_freq=1)               # an eigendecomposition of each factor in each update
    for weight, loss in zip(weights, losses):
        (weight * loss).backward(retain_graph=True)          # through all that the losses share, again and again

How to fix
----------
Give the optimizer `fused=True`, and one group for each set of options; give all tensors to one operator
(`torch._foreach_norm`, `torch._foreach_lerp_`); `clip_grad_norm_` once for all; read a norm every 50 steps;
`zero_grad()` without `set_to_none=False`. Step a learning-rate schedule once after the optimizer's step, not for each
micro-batch. Freeze what is not to learn: `model.backbone.requires_grad_(False)`; call a teacher under
`torch.no_grad()`. Detach what a loss is not to go back through; where it must, name what it teaches:
`loss.backward(inputs=list(generator.parameters()))`. Ask for all derivatives of an output at once:
`torch.autograd.grad(u, (t, x), ...)`. Add losses up and go back once.

When it stays silent
--------------------
Below its share of the step. What a step does rarely (norms logged every 100 steps) is not in the steady step. Loops
whose operators work long on large tensors cost as much together, as timed. Gradients that are kept and zeroed, where
letting them go is no faster: the allocator may fault their memory in again. An optimizer whose update was not timed:
not one of torch's own, not on the CPU, or compiled. Parameters without gradients,
which an optimizer passes over, and dense gradients of embeddings, which are PD09's. A learning rate of 0 in an
optimizer that is not torch's own, which may use its gradients otherwise. Gradients without an optimizer that
somebody was seen to read (a norm, clipping, a saliency map, an update by hand), parameters with hooks, and those that
changed meanwhile; models of which no parameter learns and whose input needs no gradient, which are PD08's. Gradients
that are accumulated, clipped, logged or copied before they are zeroed; those of parameters with hooks; derivatives by
`torch.autograd.grad`, which fill none. Such derivatives that differ by what they are weighed with (the rows of a
Jacobian), and those of graphs with functions or hooks of the job's own, which nobody may go through again. Backward
passes between which somebody reads, writes or lets go a gradient, as where gradients of several tasks are weighed.

Limits
------
What a line costs in an ordinary step is estimated from its share of the operators and pauses in the window; the window
is not opened in a job that compiles. A loop is known by what stands at its head (`parameters()`, `param_groups`,
`grads`). Of a step rule written by hand, the saving is that of other operators on the same tensors. On a GPU nothing is
timed so, and reads are PD10's. Schedules of classes with a `step` of their own are not counted. A `GradScaler` in the
inner loop needs no finding: a second `step`, `unscale_` or `update` before the next one raises. Whether gradients are
read is seen in a step or two: a job that logs their norms every 100 steps may want them. Where the passes could not be
run again (a GPU, ranks, long steps), what such gradients cost is told from the time of each layer. Gradients that are
zeroed unread are looked for where a model is called more than once per update, or a parameter that an update did not
use has a gradient; of tensors without a module those alone that last from step to step. A backward pass inside another
(reentrant checkpointing) is not followed, nor compiled code. A pass of which no gradient is read may serve something
else (a gradient kept on the way): there only the parameters' own part counts.

References
----------
- PyTorch, "Performance tuning guide": fused optimizers; set gradients to None
- torch.optim, "Default implementations": for-loop, foreach and fused
"""

from __future__ import annotations

from perfdoctor.api.findings import (
    Check,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    milliseconds,
    not_applicable,
    present,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.asserting import asserting_lines
from .._shared.lines import key
from .._shared.parameters import ParameterLoop, parameter_loops, state_lines
from .._shared.reads import of_the_job
from .._shared.traced import traced
from .derivatives import single_derivatives
from .discarded import discarded_gradients
from .factorized import factorized_each_step
from .gradients import unused_gradients
from .launches import in_trace
from .limits import Limits
from .loops import parameter_loop
from .passes_again import passes_again
from .schedules import stepped_schedules
from .state_copies import state_copies
from .statistics import statistics_updates
from .updates import updates
from .zeroed import zeroed_gradients


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The update itself, as timed; then lines that go through parameters one by one."""
    step, calls, lines = evidence.step, evidence.call_sites, evidence.hot_lines
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if step.boundary == "forward":
        return not_applicable("the job updates no parameters")
    if isinstance(calls, Missing) or isinstance(lines, Missing):
        known = present(
            updates(evidence, step, (), limits),
            unused_gradients(evidence, step, limits),
            *discarded_gradients(evidence, step, limits),
            *single_derivatives(evidence, step, limits),
            *passes_again(evidence, step, limits),
        )
        unseen = calls if isinstance(calls, Missing) else lines
        return found(*known) if known else cannot_tell(f"its lines were not watched: {unseen}")
    state = state_lines(step, lines)
    told = {key(line.site) for line in state} | asserting_lines(calls)
    loops = parameter_loops(evidence, lines, of_the_job(calls), told)
    if evidence.on_cuda:
        loops = [loop for loop in loops if not loop.reads]
    findings = present(
        updates(evidence, step, lines, limits),
        state_copies(step, state, limits),
        *(parameter_loop(evidence, step, loop, limits) for loop in loops),
        zeroed_gradients(evidence, step, lines, limits),
        *stepped_schedules(evidence, step, limits),
        *statistics_updates(evidence, step, limits),
        factorized_each_step(evidence, step, lines, limits),
        unused_gradients(evidence, step, limits),
        *discarded_gradients(evidence, step, limits),
        *single_derivatives(evidence, step, limits),
        *passes_again(evidence, step, limits),
    )
    shared = _measured(step, loops)
    if findings:
        return found(*findings, measurements=shared)
    return clear(
        "the optimizer takes {update_ms} per step ({update_share}), loops over parameters beside it {loops_ms}", *shared
    )


def _measured(step: Step, loops: list[ParameterLoop]) -> tuple[Measurement, ...]:
    return (
        milliseconds("update_ms", step.parts.optimizer, "the optimizer's part per step"),
        share("update_share", step.parts.optimizer / step.step_ms if step.step_ms > 0 else 0.0, "of the step"),
        milliseconds("loops_ms", sum(loop.ms for loop in loops), "loops over parameters, per step"),
    )


CHECK = Check(code="PD17", name="optimizer", title="the update and what is around it", limits=Limits(), examine=examine)
