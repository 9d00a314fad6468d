"""8.4 Transformer: the whole model, from ids to logits; it makes its own masks, and ties its output layer."""

from __future__ import annotations

import math  # noqa: F401 (mistakes use it)

import torch  # noqa: F401 (mistakes use it)
from torch import nn

from grader.exercises import rows
from grader.exercises.ch08 import _model_cases as _cases
from grader.exercises.ch08._other_models import OutputFirst, OwnMasks, TiedTheOtherWay
from grader.exercises.ch08._torch_model import ReferenceTransformer
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import (
    Decoder,
    Encoder,
    OutputLayer,
    PositionalEncoding,
    TokenEmbedding,
    initialise,
    padding_mask,
    target_mask,
    tie_weights,
)

# ---- what is right ----------------------------------------------------------------------------------


class Transformer(nn.Module):
    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb = TokenEmbedding(src_vocab, d_model)
        self.tgt_emb = TokenEmbedding(tgt_vocab, d_model)
        self.pos = PositionalEncoding(d_model, max_len)
        self.dropout = nn.Dropout(dropout)
        self.encoder = Encoder(d_model, h, d_ff, N, norm)
        self.decoder = Decoder(d_model, h, d_ff, N, norm)
        self.output = OutputLayer(d_model, tgt_vocab)
        tie_weights(self.tgt_emb, self.output)
        initialise(self, dropout)

    def encode(self, src):
        x = self.dropout(self.pos(self.src_emb(src)))
        return self.encoder(x, padding_mask(src))

    def decode(self, tgt_in, memory, src):
        x = self.dropout(self.pos(self.tgt_emb(tgt_in)))
        x = self.decoder(x, memory, target_mask(tgt_in), padding_mask(src))
        return self.output(x)

    def forward(self, src, tgt_in):
        return self.decode(tgt_in, self.encode(src), src)


# ---- rows -------------------------------------------------------------------------------------------

ROWS = (
    Row(
        "logits",
        "forward(src, tgt_in) gives logits [B, m, V], without padding",
        _cases.logits,
        looks=("out",),
        weight=3,
    ),
    Row(
        "padding",
        "padding in source and target is masked",
        _cases.padding,
        looks=("out",),
        weight=3,
    ),
    Row(
        "encode",
        "encode(src) gives the memory [B, n, d]",
        _cases.encode,
        looks=("out", "raised"),
    ),
    Row(
        "decode",
        "decode(tgt_in, memory, src) gives logits from the memory it is handed",
        _cases.decode,
        looks=("out",),
    ),
    Row(
        "pre-norm",
        'norm="pre" reaches both halves',
        _cases.pre_norm,
        looks=("out",),
    ),
    Row(
        "tied",
        "the target embedding and the output layer are one parameter",
        _cases.one,
        looks=("tied.*",),
        needs=("logits",),
    ),
    Row(
        "dropout",
        "dropout acts in training and rests in evaluation",
        _cases.dropout,
        looks=("eval repeats", "train repeats", "encoder's input", "decoder's input", "inside repeats"),
        needs=("logits",),
    ),
    Row(
        "defaults",
        "the defaults are the paper's: d = 512, h = 8, d_ff = 2048, N = 6, dropout = 0.1, Post-LN",
        lambda draw: [Case("defaults", {})],
        looks=("default.*",),
        needs=("logits",),
    ),
    Row(
        "gradient",
        "the gradient reaches both embeddings",
        _cases.gradient,
        looks=("grad.src_emb.emb.weight", "grad.tgt_emb.emb.weight"),
        needs=("logits", "padding", "tied"),
        weight=0.5,
    ),
    rows.device(
        _cases.one,
        _("masks are made where the ids are, so that the model also runs on a GPU"),
        needs=("logits", "padding"),
        weight=0.5,
    ),
)

SPOKEN = {
    "out": _("the output"),
    "tied.output.proj.weight": _("whether output.proj.weight is tgt_emb.emb.weight"),
    "grad.src_emb.emb.weight": _("the gradient of the source embedding"),
    "grad.tgt_emb.emb.weight": _("the gradient of the target embedding"),
    "eval repeats": _("whether two runs of model.eval() agree"),
    "train repeats": _("whether two runs of model.train() with dropout=0.5 agree"),
    "encoder's input": _("what dropout=0.25 makes of the numbers that enter the encoder"),
    "decoder's input": _("what dropout=0.25 makes of the numbers that enter the decoder"),
    "inside repeats": _("whether two runs of the encoder or of the decoder in training agree"),
    "raised": _("the error that encode gives for 17 tokens when max_len is 16"),
    "default.d_model": _("the default of d_model"),
    "default.h": _("the default of h"),
    "default.d_ff": _("the default of d_ff"),
    "default.N": _("the default of N"),
    "default.max_len": _("the default of max_len"),
    "default.dropout": _("the default of dropout"),
    "default.norm": _("the default of norm"),
}

# ---- known mistakes ---------------------------------------------------------------------------------

SRC_X = "x = self.dropout(self.pos(self.src_emb(src)))"
TGT_X = "x = self.dropout(self.pos(self.tgt_emb(tgt_in)))"
DECODED = "self.decoder(x, memory, target_mask(tgt_in), padding_mask(src))"
FORWARD = "return self.decode(tgt_in, self.encode(src), src)"

MISTAKES = (
    edit(
        "no causal mask",
        "The decoder's self-attention masks padding only, so every place sees the token it should predict. "
        "Use target_mask.",
        "target_mask(tgt_in)",
        "padding_mask(tgt_in)",
    ),
    edit(
        "target padding seen",
        "The decoder's self-attention is causal, but it looks at the target's padding. Use "
        "target_mask(tgt_in), which masks both.",
        "target_mask(tgt_in)",
        "target_mask(torch.ones_like(tgt_in))",
    ),
    edit(
        "no target mask",
        "The decoder is given no target mask at all.",
        "target_mask(tgt_in)",
        "None",
    ),
    edit(
        "mask excludes self",
        "In your target mask a token may not look at itself. The input is shifted already: the diagonal "
        "stays allowed.",
        "        x = " + DECODED,
        "        m = tgt_in.size(1)\n"
        "        strict = torch.ones(m, m, dtype=torch.bool).tril(-1)\n"
        "        strict[0, 0] = True\n"
        "        mask = strict & padding_mask(tgt_in)\n"
        "        x = self.decoder(x, memory, mask, padding_mask(src))",
    ),
    edit(
        "no mask across",
        "The decoder is not told where the source's padding is, so its cross-attention reads it. Pass "
        "padding_mask(src) as memory_mask.",
        DECODED,
        "self.decoder(x, memory, target_mask(tgt_in))",
    ),
    edit(
        "no mask in the encoder",
        "The encoder is given no mask, so real tokens look at padding. Pass padding_mask(src).",
        "self.encoder(x, padding_mask(src))",
        "self.encoder(x)",
    ),
    edit(
        "no source mask",
        "The source's padding is masked nowhere: both the encoder and the cross-attention need "
        "padding_mask(src).",
        "self.encoder(x, padding_mask(src))",
        "self.encoder(x)",
        DECODED,
        "self.decoder(x, memory, target_mask(tgt_in))",
    ),
    edit(
        "causal encoder",
        "The encoder is causal here. The source is given whole, so its tokens may look both ways: only "
        "padding is masked.",
        "self.encoder(x, padding_mask(src))",
        "self.encoder(x, target_mask(src))",
    ),
    edit(
        "target's mask across",
        "The cross-attention got the target's padding. Its keys are source tokens: the mask comes from src.",
        DECODED,
        "self.decoder(x, memory, target_mask(tgt_in), padding_mask(tgt_in))",
    ),
    edit(
        "masks swapped",
        "The decoder got its two masks in the wrong order: first the target's, then the source's.",
        DECODED,
        "self.decoder(x, memory, padding_mask(src), target_mask(tgt_in))",
    ),
    edit(
        "no positions",
        "No positions are added: the model could not tell 'dog bites man' from 'man bites dog'.",
        SRC_X,
        "x = self.dropout(self.src_emb(src))",
        TGT_X,
        "x = self.dropout(self.tgt_emb(tgt_in))",
    ),
    edit(
        "no target positions",
        "The target gets no positions.",
        TGT_X,
        "x = self.dropout(self.tgt_emb(tgt_in))",
    ),
    edit(
        "no source positions",
        "The source gets no positions.",
        SRC_X,
        "x = self.dropout(self.src_emb(src))",
    ),
    edit(
        "positions twice",
        "The positions are added twice.",
        SRC_X,
        "x = self.pos(self.dropout(self.pos(self.src_emb(src))))",
        TGT_X,
        "x = self.pos(self.dropout(self.pos(self.tgt_emb(tgt_in))))",
    ),
    edit(
        "no √d",
        "The embeddings are not multiplied by √d. TokenEmbedding does it: call src_emb(src), not "
        "src_emb.emb(src).",
        "self.src_emb(src)",
        "self.src_emb.emb(src)",
        "self.tgt_emb(tgt_in)",
        "self.tgt_emb.emb(tgt_in)",
    ),
    edit(
        "√d twice",
        "The embeddings are multiplied by √d twice. TokenEmbedding has done it already.",
        "self.src_emb(src)",
        "self.src_emb(src) * math.sqrt(self.src_emb.emb.embedding_dim)",
        "self.tgt_emb(tgt_in)",
        "self.tgt_emb(tgt_in) * math.sqrt(self.tgt_emb.emb.embedding_dim)",
    ),
    edit(
        "shifts again",
        "forward shifts tgt_in to the right, but it comes shifted. Place i would then be given token i − 2.",
        FORWARD,
        "tgt_in = torch.cat([torch.ones_like(tgt_in[:, :1]), tgt_in[:, :-1]], dim=1)\n        " + FORWARD,
    ),
    edit(
        "drops the last",
        "forward drops the last token of tgt_in. tgt_in is ready as it comes: m tokens in, m predictions "
        "out.",
        "self.decode(tgt_in, ",
        "self.decode(tgt_in[:, :-1], ",
    ),
    edit(
        "probabilities",
        "These are probabilities. Return logits: the loss takes the softmax itself.",
        "return self.output(x)",
        "return torch.softmax(self.output(x), dim=-1)",
    ),
    edit(
        "log-probabilities",
        "These are log-probabilities. Return the logits as they are.",
        "return self.output(x)",
        "return torch.log_softmax(self.output(x), dim=-1)",
    ),
    edit(
        "last place only",
        "Only the last place's logits come back. Training needs all m of them; whoever writes a sentence "
        "picks the last.",
        "return self.output(x)",
        "return self.output(x[:, -1])",
    ),
    edit(
        "no output layer",
        "The decoder's rows [B, m, d] come back. Pass them through the output layer.",
        "return self.output(x)",
        "return x",
    ),
    edit(
        "output in forward",
        "forward is right, but decode returns rows of width d. decode ends in the output layer: sentences "
        "are written with it alone.",
        "return self.output(x)",
        "return x",
        FORWARD,
        "return self.output(self.decode(tgt_in, self.encode(src), src))",
    ),
    edit(
        "encodes again",
        "decode ignores the memory it is handed and encodes the source again. Then each written token "
        "would pay for the encoder once more.",
        "self.decoder(x, memory, ",
        "self.decoder(x, self.encode(src), ",
    ),
    edit(
        "no encoder",
        "encode returns the embedded source. Pass it through the encoder.",
        "return self.encoder(x, padding_mask(src))",
        "return x",
    ),
    edit(
        "memory first",
        "The decoder's first argument is the target, its second the memory. Yours are swapped.",
        DECODED,
        "self.decoder(memory, x, padding_mask(src), target_mask(tgt_in))",
    ),
    edit(
        "not tied",
        "The target embedding and the output layer are two tensors. Call tie_weights(self.tgt_emb, "
        "self.output) in __init__.",
        "        tie_weights(self.tgt_emb, self.output)\n",
        "",
    ),
    edit(
        "tied to the source",
        "The output layer shares its matrix with the source embedding. It scores target words: tie it to "
        "tgt_emb.",
        "tie_weights(self.tgt_emb, ",
        "tie_weights(self.src_emb, ",
    ),
    edit(
        "norm unused",
        "norm is not passed to the encoder and the decoder.",
        "Encoder(d_model, h, d_ff, N, norm)",
        "Encoder(d_model, h, d_ff, N)",
        "Decoder(d_model, h, d_ff, N, norm)",
        "Decoder(d_model, h, d_ff, N)",
    ),
    edit(
        "N unused",
        "N is not passed on: each half has one layer.",
        "Encoder(d_model, h, d_ff, N, norm)",
        "Encoder(d_model, h, d_ff, 1, norm)",
        "Decoder(d_model, h, d_ff, N, norm)",
        "Decoder(d_model, h, d_ff, 1, norm)",
    ),
    edit(
        "max_len unused",
        "max_len is not passed on, so the model has another number of positions than it was asked for: "
        "PositionalEncoding(d_model, max_len).",
        "PositionalEncoding(d_model, max_len)",
        "PositionalEncoding(d_model)",
    ),
    edit(
        "no dropout",
        "dropout is never applied. It acts on the sum of embedding and positions.",
        SRC_X,
        "x = self.pos(self.src_emb(src))",
        TGT_X,
        "x = self.pos(self.tgt_emb(tgt_in))",
    ),
    edit(
        "no dropout on the source",
        "Dropout acts on the target alone. The source needs it too: on the sum of embedding and positions.",
        SRC_X,
        "x = self.pos(self.src_emb(src))",
    ),
    edit(
        "no dropout on the target",
        "Dropout acts on the source alone. The target needs it too: on the sum of embedding and positions.",
        TGT_X,
        "x = self.pos(self.tgt_emb(tgt_in))",
    ),
    edit(
        "dropout before positions",
        "Dropout acts on the embedding, before the positions are added. It acts on the sum of both.",
        SRC_X,
        "x = self.pos(self.dropout(self.src_emb(src)))",
        TGT_X,
        "x = self.pos(self.dropout(self.tgt_emb(tgt_in)))",
    ),
    edit(
        "no initialise",
        "initialise(self, dropout) is missing at the end of __init__. It sets the starting weights, and the dropout "
        "inside the layers.",
        "        initialise(self, dropout)\n",
        "",
    ),
    edit(
        "dropout always",
        "Dropout also acts in evaluation, so two runs disagree. Use an nn.Dropout module, which knows "
        "model.eval().",
        SRC_X,
        "x = nn.functional.dropout(self.pos(self.src_emb(src)), self.dropout.p)",
        TGT_X,
        "x = nn.functional.dropout(self.pos(self.tgt_emb(tgt_in)), self.dropout.p)",
    ),
    edit(
        "on the CPU",
        "Your mask is made on the CPU, whatever device the ids are on. target_mask makes it where they are; your own "
        "needs device=tgt_in.device.",
        "        x = " + DECODED,
        "        m = tgt_in.size(1)\n"
        "        mask = torch.ones(m, m, dtype=torch.bool).tril() & padding_mask(tgt_in)\n"
        "        x = self.decoder(x, memory, mask, padding_mask(src))",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="8.4",
    symbol="Transformer",
    kind="module class",
    parameters=("src_vocab", "tgt_vocab", "d_model", "h", "d_ff", "N", "max_len", "dropout", "norm"),
    points=10,
    todos=("8.4",),
    rows=ROWS,
    reference=ReferenceTransformer,
    answer=Transformer,
    mistakes=MISTAKES,
    alternatives=(OwnMasks, TiedTheOtherWay, OutputFirst),
    spoken=SPOKEN,
    hints={
        "8.4": (
            _(
                "Follow a source sentence from its ids to the memory, then a target sentence to the "
                "logits. Which parts does each pass, in which order?"
            ),
            _(
                "src [B, n] → src_emb, pos, dropout [B, n, d] → encoder → memory [B, n, d]. tgt_in [B, m] "
                "→ tgt_emb, pos, dropout [B, m, d] → decoder with memory → output → [B, m, V]."
            ),
            _(
                "encode: x = dropout(pos(src_emb(src))), then the encoder with the source's padding mask. "
                "decode: the same with tgt_emb, then the decoder with memory, the target mask and the "
                "source's padding mask, then output. forward: decode what encode gives."
            ),
        )
    },
)
