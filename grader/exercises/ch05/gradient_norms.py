"""5.5 gradient_norms: how large a gradient is at every layer's input, with and without a residual path."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.judging.compare import Tolerance
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(depth, d_model, residual, seed=0):
    """Backpropagation by the chain rule in numpy: g ← (g ⊙ (1 - y²)) W, plus g itself on a residual path."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    x = torch.randn(16, d_model).double().numpy()
    pairs = [
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in layers
    ]
    outputs = []
    for weight, bias in pairs:
        outputs.append(np.tanh(x @ weight.T + bias))
        x = outputs[-1] + residual * x
    gradient, norms = np.ones_like(x), []
    for (weight, _bias), y in zip(reversed(pairs), reversed(outputs), strict=True):
        gradient = (gradient * (1 - y**2)) @ weight + residual * gradient
        norms.append(np.linalg.norm(gradient))
    return torch.tensor(norms[::-1], dtype=torch.float32)


def deep_stack(depth, d_model, seed):
    """As the lesson's setup cell gives it."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    return layers, torch.randn(16, d_model, requires_grad=True)


def gradient_norms(depth, d_model, residual, seed=0):
    layers, x = deep_stack(depth, d_model, seed)
    inputs = []
    for layer in layers:
        inputs.append(x)
        y = torch.tanh(layer(x))
        x = x + y if residual else y
    loss = x.sum()
    gradients = torch.autograd.grad(loss, inputs)
    return torch.stack([gradient.norm() for gradient in gradients])


def autograd_grad(depth, d_model, residual, seed=0):
    """torch.autograd.grad of all inputs at once, from a stack built here."""
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh()) for _ in range(depth)]
    x = torch.randn(16, d_model, requires_grad=True)
    inputs = []
    for layer in layers:
        inputs.append(x)
        x = layer(x) + x * float(residual)
    return torch.tensor([g.norm() for g in torch.autograd.grad(x.sum(), inputs)])


def hooks(depth, d_model, residual, seed=0):
    """A hook on every layer's input notes the gradient as it passes; it passes from last to first."""
    torch.manual_seed(seed)
    layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(depth))
    x = torch.randn(16, d_model).requires_grad_()
    norms = torch.zeros(depth)
    for i, layer in enumerate(layers):
        x.register_hook(lambda g, i=i: norms.__setitem__(i, torch.linalg.vector_norm(g)))
        x = torch.tanh(layer(x)) + (x if residual else 0)
    x.backward(torch.ones_like(x))
    return norms


def a_pass_for_every_layer(depth, d_model, residual, seed=0):
    """One backward pass for every layer, each from a fresh leaf at its input."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    x, norms = torch.randn(16, d_model), []
    for start in range(depth):
        leaf = x.detach().requires_grad_()
        y = leaf
        for layer in layers[start:]:
            y = y + layer(y).tanh() if residual else layer(y).tanh()
        y.sum().backward()
        norms.append((leaf.grad**2).sum().sqrt())
        x = x + layers[start](x).tanh() if residual else layers[start](x).tanh()
    return torch.stack(norms).detach()


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, residual: bool, **kwargs) -> Case:
    depth, d = draw.choice([5, 7, 9]), draw.choice([8, 10, 12])
    return Case("function", {"args": [depth, d, residual], "kwargs": kwargs})


def _several(draw: Draw, residual: bool) -> list[Case]:
    """Also with as many features as layers, and as many features as rows."""
    n = draw.choice([8, 10])
    equal = [Case("function", {"args": [depth, d, residual]}) for depth, d in ((n, n), (5, 16))]
    return [_case(draw, residual), _case(draw, residual), *equal]


def _plain(draw: Draw) -> list[Case]:
    return _several(draw, False)


def _residual(draw: Draw) -> list[Case]:
    return _several(draw, True)


def _seed(draw: Draw) -> list[Case]:
    return [_case(draw, residual, seed=draw.size(1, 999)) for residual in (False, True)]


def _one_layer(draw: Draw) -> list[Case]:
    return [Case("function", {"args": [1, draw.choice([6, 11]), True], "kwargs": {"seed": draw.size(1, 99)}})]


# Gradients shrink by a third a layer here, so an absolute tolerance would let the first layers pass unseen.
RELATIVE = Tolerance(atol=1e-6, rtol=5e-4)
BOTH = ("plain", "residual")

ROWS = (  # no rows on dtype and device: no tensor is passed in
    Row(
        "plain",
        "residual=False: the gradient's norm at every layer's input, [depth], first layer first",
        _plain,
        looks=("out",),
        weight=2,
        tolerance=RELATIVE,
    ),
    Row(
        "residual",
        "residual=True: the same where every layer adds its input to its output",
        _residual,
        looks=("out",),
        weight=2,
        tolerance=RELATIVE,
    ),
    Row(
        "seed",
        "another seed makes another stack",
        _seed,
        looks=("out",),
        needs=BOTH,
        tolerance=RELATIVE,
    ),
    Row(
        "one layer",
        "a stack of one layer gives one number",
        _one_layer,
        looks=("out",),
        needs=BOTH,
        tolerance=RELATIVE,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "outputs for inputs",
        "These are the gradients at the layers' outputs, one layer too late. Note x before the layer uses it.",
        "        inputs.append(x)\n",
        "",
        "x = x + y if residual else y\n",
        "x = x + y if residual else y\n        inputs.append(x)\n",
    ),
    edit(
        "weights' gradients",
        "These are the gradients of the layers' weights. The gradient of what goes into a layer is asked for.",
        "(loss, inputs)",
        "(loss, [layer.weight for layer in layers])",
    ),
    edit(
        "last first",
        "The order is reversed. Backpropagation runs from last to first; the result begins with the first layer.",
        "in gradients]",
        "in reversed(gradients)]",
    ),
    edit(
        "sizes of inputs",
        "These are the norms of the inputs themselves. Take the norm of their gradient: x.grad.",
        "gradient.norm() for gradient in gradients",
        "x.norm() for x in inputs",
    ),
    edit(
        "never residual",
        "residual is not used: the layer's input is never added to its output.",
        "x + y if residual else y",
        "y",
    ),
    edit(
        "always residual",
        "residual is not used: the layer's input is added even when residual is False.",
        "x + y if residual else y",
        "x + y",
    ),
    edit(
        "residual reversed",
        "The two branches of residual are swapped.",
        "x + y if residual else y",
        "y if residual else x + y",
    ),
    edit(
        "residual from the first",
        "The first input of the stack is added at every layer. Each layer adds its own input.",
        "    inputs = []",
        "    first = x\n    inputs = []",
        "x + y if residual",
        "first + y if residual",
    ),
    edit(
        "residual inside",
        "x is added inside the tanh, which squeezes the residual path too. Add it outside: x + tanh(layer(x)).",
        "y = torch.tanh(layer(x))",
        "y = layer(x)",
        "x + y if residual else y",
        "torch.tanh(x + y if residual else y)",
    ),
    edit(
        "no tanh",
        "The tanh after the linear layer is missing.",
        "torch.tanh(layer(x))",
        "layer(x)",
    ),
    edit(
        "ReLU for tanh",
        "The layers bend with ReLU; the experiment uses tanh.",
        "torch.tanh(",
        "torch.relu(",
    ),
    edit(
        "mean loss",
        "The loss is the mean of the last output; the experiment takes the sum.",
        "x.sum()",
        "x.mean()",
    ),
    edit(
        "squared loss",
        "The loss sums the squares of the last output; the experiment sums the numbers themselves.",
        "x.sum()",
        "(x**2).sum()",
    ),
    edit(
        "squared norm",
        "These are squared norms. A norm is the root of the sum of squares.",
        "gradient.norm()",
        "(gradient**2).sum()",
    ),
    edit(
        "mean of absolute values",
        "This is the mean of |gradient|. The norm is the root of the sum of squares: gradient.norm().",
        "gradient.norm()",
        "gradient.abs().mean()",
    ),
    edit(
        "per token",
        "You took a norm for each of the 16 rows and then their mean. One norm over the whole gradient is meant.",
        "gradient.norm()",
        "gradient.norm(dim=-1).mean()",
    ),
    edit(
        "seed ignored",
        "seed is not passed on: every call builds the same stack.",
        "d_model, seed)\n",
        "d_model, 0)\n",
    ),
    edit(
        "detached layers",
        "Every layer starts from a detached copy, so the gradient stops at the last layer. "
        "Keep one graph, and ask for x.grad with retain_grad().",
        "        inputs.append(x)",
        "        x = x.detach().requires_grad_()\n        inputs.append(x)",
        "(loss, inputs)",
        "(loss, inputs, materialize_grads=True)",
    ),
    edit(
        "gradients themselves",
        "A tuple of gradients came back. Take the norm of each, and put the numbers into one tensor: torch.stack.",
        "torch.stack([gradient.norm() for gradient in gradients])",
        "gradients",
    ),
    edit(
        "not retained",
        "torch keeps .grad only for tensors that you made yourself, so it is None for the inputs in the middle. "
        "Use torch.autograd.grad(loss, inputs), or call retain_grad() on each on the way forward.",
        "gradients = torch.autograd.grad(loss, inputs)",
        "loss.backward()",
        "gradient.norm() for gradient in gradients",
        "x.grad.norm() for x in inputs",
    ),
    edit(
        "no loss",
        "A gradient needs one number to start from. The loss is the sum of the last output: x.sum().",
        "x.sum()",
        "x",
    ),
    edit(
        "list",
        "A list came back; a tensor [depth] is the contract.",
        "torch.stack([gradient.norm() for gradient in gradients])",
        "[gradient.norm().item() for gradient in gradients]",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="5.5",
    symbol="gradient_norms",
    kind="function",
    parameters=("depth", "d_model", "residual", "seed"),
    points=5,
    todos=("5.5",),
    rows=ROWS,
    reference=reference,
    answer=gradient_norms,
    mistakes=MISTAKES,
    alternatives=(autograd_grad, hooks, a_pass_for_every_layer),
    spoken={"out": _("the result")},
    equivalent={
        "inputs.append(x); y = torch.tanh(layer(x)) → y = torch.tanh(layer(x)); inputs.append(x)": (
            "neither line changes x, so their order decides nothing"
        )
    },
    hints={
        "5.5": (
            _(
                "A gradient exists at every tensor on the way from input to loss, but torch throws most of them away. "
                "Which tensors do you have to keep hold of?"
            ),
            _(
                "inputs is a list of depth tensors [16, d]; torch.autograd.grad(loss, inputs) gives as many gradients, "
                "each [16, d]; every gradient has one norm."
            ),
            _(
                "for each layer: remember x; y = tanh of the layer at x; x becomes x + y or y. "
                "Then the gradients of the sum of x by the remembered tensors, and the norm of each."
            ),
        )
    },
)
