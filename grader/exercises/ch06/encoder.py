"""6.7 Encoder: N encoder layers in a row; with Pre-Norm, one more norm at the end."""

from __future__ import annotations

import copy

import torch  # noqa: F401 (cells of mistakes use it)
from torch import nn
from torch.func import functional_call

from grader.exercises import rows
from grader.exercises.ch06 import _common
from grader.exercises.ch06._common import (
    SPOKEN,
    STACKED,
    STACKED_GRADIENT,
    BranchesAnotherAttention,
    OneLoopAttentionByHand,
    layer_case,
    layer_weights,
    norm_weights,
    with_gradient,
)
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import EncoderLayer

# ---- what is right ----------------------------------------------------------------------------------


class Reference(nn.Module):
    """nn.TransformerEncoder, given these weights."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.h = h
        self.layers = nn.ModuleList(_common.Weights(d_model, h, d_ff) for _ in range(N))
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        if final:
            self.norm = nn.LayerNorm(d_model)
        layer = _common.torch_layer(d_model, h, d_ff, norm)
        self.torchs = (nn.TransformerEncoder(layer, N, final, enable_nested_tensor=False),)

    def forward(self, x, mask=None):
        tensors = {
            f"layers.{i}.{name}": tensor
            for i, layer in enumerate(self.layers)
            for name, tensor in _common.torch_names(layer).items()
        }
        if "norm" in dict(self.named_children()):
            tensors |= {"norm.weight": self.norm.weight, "norm.bias": self.norm.bias}
        return functional_call(self.torchs[0], tensors, (x,), {"mask": _common.torch_mask(mask, x, self.h)})


class Encoder(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(d_model, h, d_ff, norm) for _ in range(N)])
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class RecursionWrappers(Encoder):
    def forward(self, x, mask=None):
        return self.norm(self.through(x, mask, 0))

    def through(self, x, mask, index):
        if index == len(self.layers):
            return x
        return self.through(self.layers[index](x, mask=mask), mask, index + 1)


class DeepCopiesIdentity(nn.Module):
    """Deep copies of one layer, as torch makes them: equal at first, independent ever after."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        layer = BranchesAnotherAttention(d_model, h, d_ff, norm)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(N)])
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(self, x, mask=None):
        for i in range(len(self.layers)):
            x = self.layers[i](x, mask)
        return self.norm(x)


class NormIsNone(nn.Module):
    """norm is None in the Post-Norm order."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList()
        for _number in range(N):
            layer = OneLoopAttentionByHand(d_model=d_model, h=h, d_ff=d_ff, norm=norm)
            self.layers.append(layer)
        self.norm = None
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return x if self.norm is None else self.norm(x)


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, N: int, norm: str | None = None, mask: str = "", sizes: dict | None = None) -> Case:
    case = layer_case(draw, norm, mask, sizes=sizes)
    d, h, d_ff = case.inputs["make"]["args"]
    weights = {}
    for i in range(N):
        weights |= layer_weights(draw, d, d_ff, f"layers.{i}.")
    if norm == "pre":
        weights |= norm_weights(draw, d, "norm.")
    make = {"args": [d, h, d_ff, N], "kwargs": case.inputs["make"]["kwargs"]}
    return Case("composite", case.inputs | {"make": make, "weights": weights})


def _post(draw: Draw) -> list[Case]:
    return [_case(draw, 3), _case(draw, 2, "post"), _case(draw, 3, sizes=_common.ALL_NINES)]


def _pre(draw: Draw) -> list[Case]:
    return [_case(draw, 3, "pre"), _case(draw, 2, "pre", sizes=_common.ALL_SIXES)]


def _mask(draw: Draw) -> list[Case]:
    by_name = _case(draw, 3, None, "own", _common.ALL_NINES)
    by_name.inputs["call"]["kwargs"] = {"mask": by_name.inputs["call"]["args"].pop()}
    return [_case(draw, 2, "pre", "padding"), _case(draw, 3, None, "own"), by_name]


def _one_layer(draw: Draw) -> list[Case]:
    return [_case(draw, 1, "pre"), _case(draw, 1)]


def _gradient(draw: Draw) -> list[Case]:
    return [with_gradient(_case(draw, 2, "pre", "padding"), draw)]


def _with_and_without_mask(draw: Draw) -> list[Case]:
    return [_case(draw, 2), _case(draw, 2, "pre", "padding")]


BOTH = ("post", "pre")
ALL = ("post", "pre", "mask")

ROWS = (
    Row(
        "post",
        "N layers of their own, one after the other",
        _post,
        looks=("out",),
        weight=3,
        tolerance=STACKED,
    ),
    Row(
        "pre",
        'norm="pre" reaches every layer, and one more norm ends the stack',
        _pre,
        looks=("out",),
        weight=2,
        tolerance=STACKED,
    ),
    Row("mask", "the mask reaches every layer", _mask, looks=("out",), needs=BOTH, tolerance=STACKED),
    Row(
        "one layer",
        "N = 1 works in both orders",
        _one_layer,
        looks=("out",),
        needs=BOTH,
        tolerance=STACKED,
        weight=0.5,  # the other half is the device's
    ),
    Row(
        "gradient",
        "the gradient reaches x and every layer's weights",
        _gradient,
        looks=("grad.*",),
        needs=ALL,
        tolerance=STACKED_GRADIENT,
    ),
    rows.input_kept(_mask, says=_("x and the mask are left unchanged"), needs=("mask",)),
    rows.device(_with_and_without_mask, needs=ALL, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

LAYERS = "nn.ModuleList([EncoderLayer(d_model, h, d_ff, norm) for _ in range(N)])"
NORM = 'nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()'
LOOP = "        for layer in self.layers:\n            x = layer(x, mask)\n"

MISTAKES = (
    edit(
        "one layer N times",
        "[layer] * N holds one layer N times: all share one set of weights. Call EncoderLayer(…) N times.",
        "[EncoderLayer(d_model, h, d_ff, norm) for _ in range(N)]",
        "[EncoderLayer(d_model, h, d_ff, norm)] * N",
    ),
    edit(
        "first layer N times",
        "The first layer runs N times and the others never. Go through self.layers.",
        "x = layer(x, mask)",
        "x = self.layers[0](x, mask)",
    ),
    edit(
        "plain list",
        "A plain list hides the layers from torch: no parameters, no training. Use nn.ModuleList([…]).",
        LAYERS,
        "[EncoderLayer(d_model, h, d_ff, norm) for _ in range(N)]",
    ),
    edit(
        "no final norm",
        'With norm="pre" nothing normalises the residual path itself: the encoder needs one more norm at its end, '
        "in the attribute norm.",
        f"        self.norm = {NORM}\n",
        "",
        "self.norm(x)",
        "x",
    ),
    edit(
        "final norm unused",
        'The final norm exists, and the result of norm="pre" does not pass it.',
        "return self.norm(x)",
        "return x",
    ),
    edit(
        "final norm in post too",
        'With norm="post" every layer already ends in a norm. Only "pre" has a final one.',
        NORM,
        "nn.LayerNorm(d_model)",
    ),
    edit(
        "final norm after each",
        "The final norm runs after every layer. It runs once, at the end.",
        "x = layer(x, mask)",
        "x = self.norm(layer(x, mask))",
        "return self.norm(x)",
        "return x",
    ),
    edit(
        "final norm first",
        "The final norm runs before the first layer. It runs at the end.",
        "return self.norm(x)",
        "return x",
        "        for layer",
        "        x = self.norm(x)\n        for layer",
    ),
    edit("no mask", "The mask is not handed to the layers.", "layer(x, mask)", "layer(x)"),
    edit(
        "mask for the first layer",
        "Only the first layer gets the mask. Every layer needs it.",
        "x = layer(x, mask)\n",
        "x = layer(x, mask)\n            mask = None\n",
    ),
    edit(
        "norm not passed on",
        'norm="pre" is not handed to the layers, so they are all Post-Norm. Pass it on.',
        "(d_model, h, d_ff, norm)",
        "(d_model, h, d_ff)",
    ),
    edit(
        "last layer only",
        "Every layer starts from the encoder's input. Each starts from the result before it: x = layer(x, mask).",
        "x = layer(x, mask)",
        "y = layer(x, mask)",
        "self.norm(x)",
        "self.norm(y)",
    ),
    edit(
        "sum of layers",
        "The layers' results are added. Each layer's result goes into the next.",
        LOOP,
        "        x = sum(layer(x, mask) for layer in self.layers)\n",
    ),
    edit(
        "residual around all",
        "The encoder's input is added once more at the end.",
        "        for layer",
        "        start = x\n        for layer",
        "self.norm(x)",
        "self.norm(start + x)",
    ),
    edit(
        "last first",
        "The layers run from last to first.",
        "in self.layers",
        "in reversed(self.layers)",
    ),
    edit(
        "returns in the loop",
        "The return stands inside the loop, so only the first layer runs.",
        "        return self.norm(x)",
        "            return self.norm(x)",
    ),
    edit(
        "result dropped",
        "The layers run, but their results are not kept: x must become what the layer returns.",
        "x = layer(x, mask)",
        "layer(x, mask)",
    ),
    edit(
        "h and d_ff swapped",
        "h and d_ff have changed places: EncoderLayer takes (d_model, h, d_ff, norm).",
        "(d_model, h, d_ff, norm)",
        "(d_model, d_ff, h, norm)",
    ),
    edit("one too few", "There are N − 1 layers.", "range(N)", "range(1, N)"),
    edit(
        "other name",
        "The contract calls the list layers.",
        "self.layers =",
        "self.blocks =",
        "in self.layers",
        "in self.blocks",
    ),
    edit(
        "on the CPU",
        "Your code makes a tensor on the CPU, whatever device x is on. Make it with device=x.device.",
        "        for layer",
        "        if mask is None:\n"
        "            mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool)\n"
        "        for layer",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="6.7",
    symbol="Encoder",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "N", "norm"),
    points=6,
    todos=("6.7",),
    rows=ROWS,
    reference=Reference,
    answer=Encoder,
    mistakes=MISTAKES,
    alternatives=(RecursionWrappers, DeepCopiesIdentity, NormIsNone),
    spoken=SPOKEN,
    hints={
        "6.7": (
            _("N layers with weights of their own: how often must EncoderLayer(…) be called?"),
            _("x [B, n, d] keeps its shape from layer to layer. Which result does the second layer get?"),
            _(
                "layers: nn.ModuleList of N fresh EncoderLayers, all told the norm; for Pre-Norm one nn.LayerNorm more. "
                "Forward: x becomes each layer's result in turn, with the same mask; then the last norm if there is one."
            ),
        )
    },
)
