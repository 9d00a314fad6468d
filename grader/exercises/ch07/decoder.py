"""7.6 Decoder: N decoder layers, one after the other; Pre-LN adds a final norm."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from grader.exercises import rows
from grader.exercises.ch07._common import (
    GRADIENTS,
    BareLayerNorms,
    ReferenceLayer,
    Skeleton,
    cases_of,
    torch_layer,
)
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.language import _
from transformer_lab.parts import DecoderLayer, LayerNorm  # the learner's DecoderLayer is that of 7.5

# ---- what is right ----------------------------------------------------------------------------------


class ReferenceDecoder(Skeleton):
    """torch.nn.TransformerDecoder, with a final norm in Pre-LN only."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        final = nn.LayerNorm(d_model) if norm == "pre" else None
        super().__init__(h, norm, nn.TransformerDecoder(torch_layer(d_model, h, d_ff, norm), N, final).eval())
        self.layers = nn.ModuleList(ReferenceLayer(d_model, h, d_ff, norm) for _ in range(N))
        if norm == "pre":
            self.norm = nn.LayerNorm(d_model)


class Decoder(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, h, d_ff, norm) for _ in range(N))
        self.norm = LayerNorm(d_model) if norm == "pre" else None

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask)
        return x if self.norm is None else self.norm(x)


class IdentityForNoNorm(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer(d_model, h, d_ff, norm=norm) for _ in range(N)])
        self.norm = LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask)
        return self.norm(x)


class NormOrNone(nn.Module):
    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        self.layers = nn.ModuleList()
        for _layer in range(N):
            self.layers.append(BareLayerNorms(d_model, h, d_ff, norm=norm))
        self.norm = LayerNorm(d_model) if norm == "pre" else None

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask)
        return self.norm(x) if self.norm is not None else x


class Recursion(NormOrNone):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        def after(k):
            return self.layers[k - 1](after(k - 1), memory, tgt_mask, memory_mask) if k else x

        out = after(len(self.layers))
        if self.norm is None:
            return out
        return F.layer_norm(out, out.shape[-1:], self.norm.weight, self.norm.bias)


# ---- rows -------------------------------------------------------------------------------------------

CASES = cases_of(ReferenceDecoder, n_layers=2)
STACK = ("stack",)

ROWS = (
    Row(
        "stack",
        "N layers of their own, one after the other, all reading the same memory",
        CASES["plain"],
        looks=("out",),
        weight=3,
    ),
    Row("target mask", "every layer gets tgt_mask", CASES["target mask"], looks=("out",), needs=STACK),
    Row("memory mask", "every layer gets memory_mask", CASES["memory mask"], looks=("out",), needs=STACK),
    Row("pre-norm", 'norm="pre": Pre-LN layers and a final norm', CASES["pre"], looks=("out",), weight=2),
    Row(
        "gradient",
        "the gradient reaches x and memory",
        CASES["gradient"],
        looks=("grad.*",),
        needs=("stack", "target mask", "memory mask"),
        weight=0.5,  # the other half is the device row's
    ),
    rows.device(CASES["both masks"], needs=STACK, weight=0.5),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "one layer N times",
        "All your layers are one and the same object, so they share their weights. Make a new DecoderLayer N times.",
        "nn.ModuleList(DecoderLayer(d_model, h, d_ff, norm) for _ in range(N))",
        "nn.ModuleList([DecoderLayer(d_model, h, d_ff, norm)] * N)",
    ),
    edit(
        "plain list",
        "A Python list hides its modules from PyTorch: no parameters, no training, no device. Use nn.ModuleList.",
        "nn.ModuleList(DecoderLayer(d_model, h, d_ff, norm) for _ in range(N))",
        "[DecoderLayer(d_model, h, d_ff, norm) for _ in range(N)]",
    ),
    edit(
        "N unused",
        "There is only one layer, whatever N is.",
        "nn.ModuleList(DecoderLayer(d_model, h, d_ff, norm) for _ in range(N))",
        "nn.ModuleList([DecoderLayer(d_model, h, d_ff, norm)])",
    ),
    edit(
        "no final norm",
        "Pre-LN needs one more norm after the last layer, as the attribute norm: "
        "the residual stream itself was never normalised.",
        'LayerNorm(d_model) if norm == "pre" else None',
        "None",
    ),
    edit(
        "final norm always",
        "Post-LN ends in a norm already. The final norm is for Pre-LN only.",
        'LayerNorm(d_model) if norm == "pre" else None',
        "LayerNorm(d_model)",
    ),
    edit(
        "final norm unused",
        "The final norm exists, but forward does not use it.",
        "return x if self.norm is None else self.norm(x)",
        "return x",
    ),
    edit(
        "norm not passed on",
        "norm is not passed to the layers, so they all do Post-LN.",
        "d_ff, norm) for",
        "d_ff) for",
    ),
    edit(
        "None called",
        "For Post-LN self.norm is None, and None cannot be called. Use the final norm only where there is one.",
        "return x if self.norm is None else self.norm(x)",
        "return self.norm(x)",
    ),
    edit(
        "norm after each layer",
        "The final norm runs after every layer. It stands once, after the last.",
        "            x = layer(x, memory, tgt_mask, memory_mask)\n",
        "            x = layer(x, memory, tgt_mask, memory_mask)\n"
        "            x = x if self.norm is None else self.norm(x)\n",
    ),
    edit(
        "masks unused",
        "The masks are not passed to the layers.",
        "layer(x, memory, tgt_mask, memory_mask)",
        "layer(x, memory)",
    ),
    edit(
        "target mask unused",
        "tgt_mask is not passed to the layers.",
        "layer(x, memory, tgt_mask, memory_mask)",
        "layer(x, memory, None, memory_mask)",
    ),
    edit(
        "memory mask unused",
        "memory_mask is not passed to the layers.",
        "layer(x, memory, tgt_mask, memory_mask)",
        "layer(x, memory, tgt_mask)",
    ),
    edit(
        "masks swapped",
        "The masks arrive in the wrong order: forward(x, memory, tgt_mask, memory_mask).",
        "layer(x, memory, tgt_mask, memory_mask)",
        "layer(x, memory, memory_mask, tgt_mask)",
    ),
    edit(
        "memory replaced",
        "From the second layer on, memory is the decoder's own output. Every layer reads the encoder's memory.",
        "x = layer(x, memory",
        "x = memory = layer(x, memory",
    ),
    edit(
        "x not passed on",
        "Every layer starts from the first x again, so only the last layer counts. Pass each layer's output to the next.",
        "x = layer(",
        "out = layer(",
        "return x if self.norm is None else self.norm(x)",
        "return out if self.norm is None else self.norm(out)",
    ),
    edit(
        "residual around layers",
        "You add x once more around each layer. The residuals are inside the layer already.",
        "x = layer(",
        "x = x + layer(",
    ),
    edit("from the top", "The layers run in reverse order.", "in self.layers", "in reversed(self.layers)"),
    edit(
        "masks in the first layer only",
        "Only the first layer gets the masks.",
        "for layer in self.layers:",
        "for i, layer in enumerate(self.layers):",
        "layer(x, memory, tgt_mask, memory_mask)",
        "layer(x, memory, tgt_mask, memory_mask) if i == 0 else layer(x, memory)",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="7.6",
    symbol="Decoder",
    kind="module class",
    parameters=("d_model", "h", "d_ff", "N", "norm"),
    points=4,
    todos=("7.6",),
    rows=ROWS,
    reference=ReferenceDecoder,
    answer=Decoder,
    mistakes=MISTAKES,
    alternatives=(IdentityForNoNorm, NormOrNone, Recursion),
    spoken=GRADIENTS,
    hints={
        "7.6": (
            _(
                "Each layer takes x and gives a new x of the same shape. What stays the same from layer to layer?"
            ),
            _(
                "layers: nn.ModuleList of N DecoderLayer; x [B, m, d] stays [B, m, d]; memory [B, n, d] and the masks "
                "go to each."
            ),
            _(
                "in __init__: a ModuleList of N new layers, and norm = a LayerNorm for Pre-LN, else nothing; "
                "in forward: x = layer(x, memory, both masks) for each layer; then the final norm, if there is one"
            ),
        )
    },
)
