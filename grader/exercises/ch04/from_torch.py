"""4.7 from_torch: torch's own multi-head attention as a MultiHeadAttention with the same weights."""

from __future__ import annotations

import math

import torch
from torch import nn

from grader.exercises import rows
from grader.exercises.ch04._common import NAMES, SPOKEN, TorchAttention, equal_sizes, random_mask, sizes
from grader.exercises.draw import Draw
from grader.exercises.edits import edit, whole
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import MultiHeadAttention

# ---- what is right ----------------------------------------------------------------------------------


def reference(mha):
    """A module of torch's functional attention that holds the same weights."""
    d = mha.embed_dim
    twin = TorchAttention(d, mha.num_heads).to(mha.in_proj_weight)
    state = {"W_o.weight": mha.out_proj.weight}
    for index, name in enumerate(("W_q", "W_k", "W_v")):
        state[f"{name}.weight"] = mha.in_proj_weight[index * d : (index + 1) * d]
        if mha.in_proj_bias is not None:
            state[f"{name}.bias"] = mha.in_proj_bias[index * d : (index + 1) * d]
    if mha.in_proj_bias is not None:
        state["W_o.bias"] = mha.out_proj.bias
    zeros = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    twin.load_state_dict(zeros | state)
    return twin


def from_torch(mha):
    own = MultiHeadAttention(mha.embed_dim, mha.num_heads).to(mha.in_proj_weight)
    with torch.no_grad():
        weight, bias = mha.in_proj_weight, mha.in_proj_bias
        if bias is None:
            bias = torch.zeros(3 * mha.embed_dim)
        weights, biases = weight.chunk(3), bias.chunk(3)
        for i, layer in enumerate((own.W_q, own.W_k, own.W_v)):
            layer.weight.copy_(weights[i])
            layer.bias.copy_(biases[i])
        own.W_o.weight.copy_(mha.out_proj.weight)
        own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)
    return own


def state_dict(mha):
    d = mha.embed_dim
    own = MultiHeadAttention(d, mha.num_heads).to(mha.in_proj_weight)
    bias, out_bias = mha.in_proj_bias, mha.out_proj.bias
    bias = mha.in_proj_weight.new_zeros(3 * d) if bias is None else bias
    out_bias = mha.in_proj_weight.new_zeros(d) if out_bias is None else out_bias
    state = {"W_o.weight": mha.out_proj.weight, "W_o.bias": out_bias}
    for name, w, b in zip("qkv", mha.in_proj_weight.chunk(3), bias.chunk(3), strict=True):
        state |= {f"W_{name}.weight": w, f"W_{name}.bias": b}
    own.load_state_dict(state)
    return own


def new_parameters(mha):
    """New nn.Parameters in place of the old ones."""
    d = mha.in_proj_weight.size(1)
    own = MultiHeadAttention(d, mha.num_heads)
    triples = mha.in_proj_weight.detach().clone().reshape(3, d, d)
    for index, layer in enumerate((own.W_q, own.W_k, own.W_v)):
        layer.weight = nn.Parameter(triples[index])
        bias = torch.zeros_like(triples[0, 0]) if mha.in_proj_bias is None else mha.in_proj_bias.detach()
        layer.bias = nn.Parameter(bias.reshape(-1, d)[index if len(bias) > d else 0].clone())
    own.W_o.weight = nn.Parameter(mha.out_proj.weight.detach().clone())
    out_bias = mha.out_proj.bias
    zeros = torch.zeros_like(triples[0, 0])
    own.W_o.bias = nn.Parameter(zeros if out_bias is None else out_bias.detach().clone())
    return own


@torch.no_grad()
def slices(mha):
    d = mha.embed_dim
    own = MultiHeadAttention(d, mha.num_heads).to(mha.out_proj.weight)
    for name, p in own.named_parameters():
        p.zero_()
        layer, kind = name.split(".")
        if layer == "W_o":
            source = getattr(mha.out_proj, kind)
        else:
            all_three = getattr(mha, f"in_proj_{kind}")
            start = ("W_q", "W_k", "W_v").index(layer) * d
            source = None if all_three is None else all_three[start : start + d]
        if source is not None:
            p += source
    return own


# ---- rows -------------------------------------------------------------------------------------------


def _torch_weights(draw: Draw, d: int, bias: bool) -> dict[str, torch.Tensor]:
    shapes = {"in_proj_weight": (3 * d, d), "out_proj.weight": (d, d)}
    if bias:
        shapes |= {"in_proj_bias": (3 * d,), "out_proj.bias": (d,)}
    return {name: draw.normal(*shape, scale=1.1 / math.sqrt(d)) for name, shape in shapes.items()}


def _case(draw: Draw, *mask_axes: str | int, bias: bool = True, **equal: str) -> Case:
    s = equal_sizes(draw, **equal)
    inputs = {
        "d_model": s["d"],
        "h": s["h"],
        "weights": _torch_weights(draw, s["d"], bias),
        "args": [draw.normal(s["B"], n, s["d"]) for n in (s["n_q"], s["n_k"], s["n_k"])],
    }
    if mask_axes:
        inputs["kwargs"] = {"mask": random_mask(draw, *(s.get(axis, axis) for axis in mask_axes))}
    return Case("from_torch", inputs)


def _plain(draw: Draw) -> list[Case]:
    return [_case(draw)]


def _masked(draw: Draw) -> list[Case]:
    """The last one has as many sequences as heads, and as many queries as keys."""
    shapes = (("n_q", "n_k"), ("B", "n_q", "n_k"), ("B", 1, 1, "n_k"))
    return [*(_case(draw, *axes) for axes in shapes), _case(draw, *shapes[1], B="h", n_q="d_k", n_k="d_k")]


def _without_biases(draw: Draw) -> list[Case]:
    return [_case(draw, bias=False)]


def _mask_for_all(draw: Draw) -> list[Case]:
    return [_case(draw, "n_q", "n_k")]


def _converted(draw: Draw) -> list[Case]:
    """The conversion alone, with and without biases: what comes out is a module."""
    cases = []
    for bias in (True, False):
        s = sizes(draw)
        tree = {"$": "torch attention", "d_model": s["d"], "h": s["h"]}
        cases.append(Case("function", {"args": [tree | {"weights": _torch_weights(draw, s["d"], bias)}]}))
    return cases


LAYERS = tuple(f"attr.{name}" for name in NAMES)
NAMED, SAME = ("names",), ("same output",)

ROWS = (
    Row(
        "names",
        "the result is a MultiHeadAttention with W_q, W_k, W_v and W_o",
        _plain,
        looks=("parameters",),
    ),
    Row(
        "three layers from one",
        "W_q, W_k and W_v hold the rows of in_proj_weight and in_proj_bias",
        _plain,
        looks=LAYERS[:6],
        needs=NAMED,
        weight=2,
    ),
    Row("output layer", "W_o holds out_proj", _plain, looks=LAYERS[6:], needs=NAMED),
    Row(
        "same output",
        "the same output and the same weights, head by head, as torch (needs your MultiHeadAttention)",
        _plain,
        looks=("out", "attr.weights"),
        needs=NAMED,
        weight=2,
    ),
    Row(
        "same with a mask",
        "with a mask, too; torch's own mask has the opposite sign",
        _masked,
        looks=("out",),
        needs=SAME,
    ),
    Row(
        "torch without biases",
        "a module made with bias=False gives biases of 0",
        _without_biases,
        looks=(*LAYERS, "out"),
        needs=SAME,
    ),
    rows.float64(
        _mask_for_all,
        _("a float64 module gives a float64 module"),
        needs=SAME,
        looks=(*LAYERS, "out"),
        weight=0.5,
    ),
    Row("torch kept", "torch's module is left unchanged", _plain, looks=("changed",), needs=SAME),
    rows.device(
        _converted,
        _("your module is made where torch's is, so that it also runs on a GPU"),
        needs=SAME,
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------


def new_module(mha):
    return MultiHeadAttention(mha.embed_dim, mha.num_heads)


IN_BIAS = "            layer.bias.copy_(biases[i])\n"
OUT_BIAS = "        own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)\n"
TORCH_SIGN = """\
class TorchSign(MultiHeadAttention):
    def forward(self, q, k, v, mask=None):
        return super().forward(q, k, v, None if mask is None else ~mask)


def from_torch(mha):
    own = TorchSign("""

MISTAKES = (
    edit(
        "transposed",
        "The matrices are transposed. nn.Linear keeps its weight as [out, in], exactly as torch's attention does: "
        "copy them as they are.",
        "weights[i]",
        "weights[i].T",
        "mha.out_proj.weight)",
        "mha.out_proj.weight.T)",
    ),
    edit(
        "three transposed",
        "W_q, W_k and W_v are transposed. in_proj_weight [3d, d] holds [out, in] as nn.Linear does: "
        "cut its rows and copy them as they are.",
        "weights[i]",
        "weights[i].T",
    ),
    edit(
        "k before q",
        "The first block of in_proj_weight went to W_k. The order is q, k, v.",
        "own.W_q, own.W_k, own.W_v",
        "own.W_k, own.W_q, own.W_v",
    ),
    edit(
        "v before k",
        "The second block of in_proj_weight went to W_v. The order is q, k, v.",
        "own.W_q, own.W_k, own.W_v",
        "own.W_q, own.W_v, own.W_k",
    ),
    edit(
        "every third row",
        "You took every third row. The rows stand in three blocks: the first d are W_q's, then W_k's, then W_v's.",
        "weight.chunk(3)",
        "[weight[i::3] for i in range(3)]",
        "bias.chunk(3)",
        "[bias[i::3] for i in range(3)]",
    ),
    edit(
        "first block only",
        "All three layers got the first block, the queries'.",
        "weights[i]",
        "weights[0]",
    ),
    edit(
        "biases forgotten",
        "No bias was copied, so yours are still random.",
        IN_BIAS,
        "",
        OUT_BIAS,
        "",
    ),
    edit(
        "biases zero",
        "All biases are 0; torch's are not.",
        IN_BIAS,
        "            layer.bias.zero_()\n",
        OUT_BIAS,
        "        own.W_o.bias.zero_()\n",
    ),
    edit(
        "in_proj_bias forgotten",
        "in_proj_bias [3d] was not copied: W_q, W_k and W_v still have random biases.",
        IN_BIAS,
        "",
    ),
    edit(
        "out_proj forgotten",
        "out_proj was not copied: W_o is still random.",
        "        own.W_o.weight.copy_(mha.out_proj.weight)\n",
        "",
        OUT_BIAS,
        "",
    ),
    edit("out_proj.bias forgotten", "out_proj.bias was not copied.", OUT_BIAS, ""),
    edit(
        "one head",
        "The weights are right, but your module has one head. mha.num_heads says how many torch's has.",
        "mha.num_heads",
        "1",
    ),
    edit(
        "head_dim for num_heads",
        "The number of heads is mha.num_heads; you passed the width of one (head_dim).",
        "mha.num_heads",
        "mha.head_dim",
    ),
    whole(
        "nothing copied",
        "This is a new module with random weights: nothing was copied.",
        new_module,
    ),
    edit(
        "torch's own",
        "You returned torch's module itself. Make a MultiHeadAttention and copy the weights into it.",
        "return own",
        "return mha",
    ),
    edit("nothing returned", "The function returns nothing.", "    return own\n", ""),
    edit(
        "mask sign",
        "Weights and outputs agree until a mask comes: your module takes True for “must not attend”, as torch does. "
        "Keep this course's sign, True for “may attend”.",
        "def from_torch(mha):\n    own = MultiHeadAttention(",
        TORCH_SIGN,
    ),
    edit(
        "scaled twice",
        "W_q is divided by √d_k. The attention divides the scores by itself: copy W_q as it is.",
        "        own.W_o.weight.copy_(",
        "        own.W_q.weight.div_(math.sqrt(mha.head_dim))\n        own.W_o.weight.copy_(",
    ),
    edit(
        "needs biases",
        "A module made with bias=False has no in_proj_bias (it is None). Yours has biases: set them to 0.",
        "        if bias is None:\n            bias = torch.zeros(3 * mha.embed_dim)\n",
        "",
    ),
    edit(
        "random biases left",
        "When torch's module has no biases, yours must be 0; they are still random.",
        "        if bias is None:\n            bias = torch.zeros(3 * mha.embed_dim)\n",
        "",
        "bias.chunk(3)",
        "bias if bias is None else bias.chunk(3)",
        "            layer.bias.copy_",
        "            if bias is not None:\n                layer.bias.copy_",
        "        own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)",
        "        if bias is not None:\n            own.W_o.bias.copy_(mha.out_proj.bias)",
    ),
    edit(
        "always float32",
        "A float64 module came out as float32. Move yours first: .to(mha.in_proj_weight) takes over dtype and device.",
        ".to(mha.in_proj_weight)",
        "",
    ),
    edit(
        "torch changed",
        "torch's module was changed on the way. Only read from it.",
        "    return own",
        "    mha.in_proj_weight.data.zero_()\n    return own",
    ),
    edit(
        "on the CPU",
        "Your module has the dtype of torch's, but it stays on the CPU, wherever torch's is. "
        ".to(mha.in_proj_weight) takes over dtype and device.",
        ".to(mha.in_proj_weight)",
        ".to(mha.in_proj_weight.dtype)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

COPIES = "Each copy fills a parameter of its own, so their order does not matter."

EXERCISE = Exercise(
    id="4.7",
    symbol="from_torch",
    kind="function",
    parameters=("mha",),
    points=5,
    todos=("4.7",),
    rows=ROWS,
    reference=reference,
    answer=from_torch,
    mistakes=MISTAKES,
    alternatives=(state_dict, new_parameters, slices),
    spoken=SPOKEN,
    equivalent={
        "3 * mha.embed_dim → 3": "Three zeros or 3d zeros: copy_ spreads a piece of one zero over the bias.",
        "enumerate((own.W_q, own.W_k, own.W_v)) → list(enumerate((own.W_q, own.W_k, own.W_v)))[::-1]": COPIES,
        "layer.weight.copy_(weights[i]); layer.bias.copy_(biases[i]) → "
        "layer.bias.copy_(biases[i]); layer.weight.copy_(weights[i])": COPIES,
        "own.W_o.weight.copy_(mha.out_proj.weight); "
        "own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias) → "
        "own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias); "
        "own.W_o.weight.copy_(mha.out_proj.weight)": COPIES,
    },
    hints={
        "4.7": (
            _("torch keeps W_q, W_k and W_v in one matrix of 3d rows. Which rows are whose?"),
            _(
                "in_proj_weight [3d, d] → three of [d, d]; in_proj_bias [3d] → three of [d]; "
                "out_proj is a linear layer like yours."
            ),
            _(
                "cut the big weight and the big bias into three (chunk); with gradients off, copy_ each piece into "
                "the layer of the same role, and out_proj into W_o; where torch has no bias, fill yours with 0"
            ),
        )
    },
)
