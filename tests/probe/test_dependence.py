"""Which loops need the iteration before, told from their source. The line asked about is marked with `#<`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from perfdoctor.injected._perfdoctor_probe.windows import dependence

_LOOPS = (ast.For, ast.While, *dependence.COMPREHENSIONS)


def _carried(source: str) -> list[str]:
    """Of the first loop, or of the first function in a source without loops."""
    source = textwrap.dedent(source)
    tree = ast.parse(source)
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "#<" in text)
    nodes = list(ast.walk(tree))
    loops = [one for one in nodes if isinstance(one, _LOOPS)]
    owner = next((one for one in nodes if isinstance(one, ast.ClassDef)), None)
    functions = [one for one in nodes if isinstance(one, ast.FunctionDef) and one.lineno <= line <= one.end_lineno]
    (node,) = loops[:1] or functions[-1:]
    return dependence.carried(node, line, dependence.imported(tree), dependence.methods(owner))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("for t in range(9):\n    h = cell(x[t], h)  #<", ["h"]),
        ("for t in range(9):\n    h, c = cell(x[t], (h, c))  #<", ["h", "c"]),
        ("for t in range(9):\n    e = embed(x[t])\n    h = cell(e, h)\n    out.append(head(h))  #<", ["h"]),
        ("for t in range(9):\n    self.h = torch.tanh(self.w(x[t]) + self.h)  #<", ["self.h"]),
        ("for t in range(1, 9):\n    x[t] = f(x[t - 1])  #<", ["x"]),
        ("for t in range(9):\n    x[0] = f(x[0])  #<", ["x"]),
        ("for t in range(9):\n    states.append(f(states[-1], u[t]))  #<", ["states"]),
        ("for r in reversed(rewards):\n    R = r + gamma * R  #<", ["R"]),
        ("for r in rewards:\n    R *= gamma\n    R += r  #<", ["R"]),
        ("for layer in layers:\n    x = layer(x)  #<", ["x"]),
        ("for t in range(9):\n    tokens = torch.cat([tokens, pick(model(tokens))])  #<", ["tokens"]),
        ("for k in range(5):\n    grads = grad(loss(w))  #<\n    w = [p - lr * g for p, g in zip(w, grads)]", ["w"]),
        ("for k in range(5):\n    pos += vel * dt  #<\n    vel += force(pos) * dt", ["pos", "vel"]),
        ("for k in range(5):\n    a, b = b, f(a)  #<", ["a", "b"]),
        ("for k in range(5):\n    h.copy_(cell(x[k], h))  #<", ["h"]),
        ("for k in range(5):\n    state['p'] = f(state['p'], u[k])  #<", ["state"]),
        ("while not done:\n    a = policy(s)  #<\n    s, r, done = env.step(a)", ["s"]),
        ("while True:\n    a = policy(s)  #<\n    s, r, done, info = env.step(a)\n    if done:\n        break", ["s"]),
        ("while True:\n    a = policy(env.state)  #<\n    env.step(a)", ["env"]),
        ("for t in range(9):\n    a = policy(sim.observe())  #<\n    sim.apply(a)", ["sim"]),
        (
            "for t in range(9):\n    with no_grad():\n        a = policy(obs)  #<\n    obs, *_ = env.step(a)",
            ["obs"],
        ),
        ("while err > eps:\n    z = g(x)  #<\n    err = norm(f(z) - err)", ["err"]),
        ("for t in range(9):\n    if t % 2:\n        h = cell(x[t], h)  #<", ["h"]),
        ("for t in range(9):\n    for k in range(3):\n        h = cell(x[t, k], h)  #<", ["h"]),
        ("[env.step(policy(a)) for a in actions]  #<", ["env"]),
        ("for t in range(9):\n    try:\n        h = cell(x[t], h)  #<\n    except ValueError:\n        pass", ["h"]),
        (
            """
            class Agent:
                def act(self, x):
                    self.memory = f(x, self.memory)
                    return self.head(self.memory)
                def run(self):
                    for x in self.inputs:
                        out = self.act(x)  #<
            """,
            ["self.memory"],
        ),
        (
            """
            class World:
                def step(self, action):
                    push = self.network(action)
                    self.state = self.state + f(self.state, push)  #<
                    return self.state
            """,
            ["self.state"],
        ),
    ],
)
def test_what_needs_the_iteration_before(source: str, names: list[str]) -> None:
    found = _carried(source)
    assert found[: len(names)] == names or set(names) <= set(found), found


@pytest.mark.parametrize(
    "source",
    [
        "for i in range(9):\n    total = total + f(x[i])  #<",
        "for i in range(9):\n    total += f(x[i])  #<",
        "for i in range(9):\n    total = f(x[i]) + total  #<",
        "for i in range(9):\n    total = total + a(x[i]) + b(x[i])  #<",
        "for i in range(9):\n    loss = f(x[i])  #<\n    total += loss\n    count += 1",
        "for i in range(9):\n    losses.append(f(x[i]))  #<",
        "for i in range(9):\n    out[i] = f(x[i])  #<",
        "for i in range(9):\n    out[i] = f(x[i], out[i])  #<",
        "for i in range(9):\n    out[:, i] = f(out[:, i])  #<",
        "for i in range(9):\n    k = order[i]\n    out[k] += f(x[i])  #<",
        "for i in range(9):\n    out[i].copy_(f(x[i]))  #<",
        "for i in range(9):\n    self.total += f(x[i])  #<",
        "for i in range(9):\n    self.total = self.total + f(x[i])  #<",
        "for i in range(9):\n    best = torch.max(best, f(x[i]))  #<",
        "for i in range(9):\n    loss = f(x[i])  #<\n    if loss < best:\n        best = loss",
        "for i in range(9):\n    loss = f(x[i])  #<\n    mean = 0.9 * mean + 0.1 * loss",
        "for i in range(9):\n    y = f(x[i])\n    y = g(y)  #<\n    total += y",
        "for i in range(9):\n    if y[i] > 0:\n        total += f(x[i])  #<\n    else:\n        total += g(x[i])",
        "i = 0\nwhile i < n:\n    total += f(x[i])  #<\n    i += 1",
        "while queue:\n    item = queue.pop()\n    total += f(item)  #<",
        "for a, b in zip(xs, ys):\n    d[a] = f(b)  #<",
        "[f(x) for x in xs]  #<",
        "{k: f(v) for k, v in d.items()}  #<",
        "sum(f(x) for x in xs)  #<",
        "for i in range(9):\n    model.zero_grad()\n    loss = f(model(x[i]))  #<\n    loss.backward()",
        "for i in range(9):\n    for j in range(9):\n        h = f(x[i], x[j])  #<\n        total += h",
        "for i in range(9):\n    h = zeros()\n    for t in range(9):\n        h = cell(x[i, t], h)  #<",
        "import torch\nfor i in range(9):\n    torch.manual_seed(i)\n    out.append(torch.rand(3) * x[i])  #<",
        "for i in range(9):\n    cache = cache if cache is not None else make()\n    out.append(f(x[i]))  #<",
        "for e in edges:\n    m = f(h[e.a], h[e.b])  #<\n    out[e.b] += m",
        "for t in range(9):\n    e = embed(x[t])  #<\n    h = cell(e, h)",
        "for i in range(9):\n    opt.zero_grad()\n    pbar.update(1)\n    out.append(f(x[i]))  #<",
        "for i in range(9):\n    offset += step\n    out.append(f(x[offset]))  #<",
        """
        class Net:
            def one(self, x):
                self.calls += 1
                return self.head(x)
            def run(self):
                for x in self.inputs:
                    total += self.one(x)  #<
        """,
        """
        class Net:
            def forward(self, x):
                if self.scale is None:
                    self.scale = make(x)
                self.seen += 1
                return self.layer(x) * self.scale  #<
        """,
    ],
)
def test_what_could_be_computed_together(source: str) -> None:
    assert _carried(source) == []
