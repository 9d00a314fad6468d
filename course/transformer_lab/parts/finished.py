"""Finished parts, one for every part a learner builds, with the same names and the same interface.

Whoever has not finished an earlier chapter goes on with these. They stand on what `torch.nn` and
`torch.nn.functional` already offer, so they show the interface and not how the lesson's exercise is solved.

A part that holds other parts takes `parts`, a dict from a name ("MultiHeadAttention") to the class or
function to use instead of the finished one. So one attention of your own can stand in an otherwise finished
Transformer: `Transformer(V_src, V_tgt, parts={"MultiHeadAttention": MultiHeadAttention})`.

Shapes: B batch, n source length, m target length, d width, h heads, V vocabulary. Masks are boolean,
True means "may attend", and broadcast to `[B, h, n_q, n_k]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.language import _

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
Parts = Mapping[str, Callable]


def build(parts: Parts | None, name: str, *args, **kwargs):
    """Make the part `name`: the one in `parts` if there is one, else the finished one."""
    part = (parts or {}).get(name, globals()[name])
    if getattr(part, "takes_parts", False):
        kwargs["parts"] = parts
    return part(*args, **kwargs)


# ------------------------------------------------------------------------------------- 01 embedding
class TokenEmbedding(nn.Module):
    """`ids [B, n] -> [B, n, d]`: the rows of a table, times √d."""

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.emb.weight * math.sqrt(self.emb.embedding_dim))


def build_vocab(sentences: list[list[str]]) -> dict[str, int]:
    """Number the special tokens, then the words in order of first appearance."""
    words = dict.fromkeys(SPECIALS) | dict.fromkeys(word for sentence in sentences for word in sentence)
    return dict(zip(words, range(len(words)), strict=True))


def encode(sentences: list[list[str]], vocab: Mapping[str, int]) -> Tensor:
    """Sentences as ids `[B, n_max]`, padded on the right; a word outside `vocab` becomes `<unk>`."""
    rows = [
        torch.tensor([vocab.get(word, UNK) for word in sentence], dtype=torch.long) for sentence in sentences
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


# ------------------------------------------------------------------------------------- 02 positions
class PositionalEncoding(nn.Module):
    """`x [B, n, d] -> x + pe[:n]`, with the sines and cosines of "Attention Is All You Need", 3.5."""

    def __init__(self, d_model: int, max_len: int = 5000):
        super().__init__()
        pairs = math.ceil(d_model / 2)
        frequency = torch.logspace(0, -2 * (pairs - 1) / d_model, pairs, base=10000.0, dtype=torch.float64)
        angle = torch.outer(torch.arange(max_len, dtype=torch.float64), frequency)
        wave = torch.view_as_real(torch.polar(torch.ones_like(angle), angle))  # [max_len, d/2, (cos, sin)]
        self.register_buffer("pe", wave.flip(-1).flatten(1)[:, :d_model].to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.pe.narrow(0, 0, x.size(1)))


class LearnedPositionalEncoding(nn.Module):
    """`x [B, n, d] -> x + pos[:n]` with a learned row for each position; ValueError beyond `max_len`."""

    def __init__(self, d_model: int, max_len: int):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > self.pos.num_embeddings:
            raise ValueError(
                _("{x_size} tokens, but only {num_embeddings} positions were made").format(
                    x_size=x.size(1), num_embeddings=self.pos.num_embeddings
                )
            )
        return torch.add(x, self.pos.weight.narrow(0, 0, x.size(1)))


# ------------------------------------------------------------------------------------- 03, 04 attention
def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: `(out [..., n_q, d_v], weights [..., n_q, n_k])`."""
    return F.scaled_dot_product_attention(q, k, v, mask), attention_weights(q, k, mask)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights alone: what attention gives when every value is a row of the identity matrix."""
    one_hot = torch.eye(k.size(-2), dtype=k.dtype, device=k.device).expand(*k.shape[:-1], k.size(-2))
    return F.scaled_dot_product_attention(q, k, one_hot, mask)


class SelfAttention(nn.Module):
    """One head of width d: `x [B, n, d] -> [B, n, d]`."""

    def __init__(self, d_model: int):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x))


class MultiHeadAttention(nn.Module):
    """`q [B, n_q, d], k and v [B, n_k, d] -> [B, n_q, d]`; ValueError when h does not divide d.

    `weights [B, h, n_q, n_k]` are those of the latest call. They are worked out only when somebody looks:
    training never needs them, and the fused kernel of torch does not keep them.
    """

    def __init__(self, d_model: int, h: int):
        super().__init__()
        if d_model % h:
            raise ValueError(_("h = {h} does not divide d_model = {d_model}").format(h=h, d_model=d_model))
        self.h = h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self._latest = None  # heads of q and k, and the mask, of the latest call

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        heads = [
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2)  # [B, h, n, d_k]
            for w, x in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        ]
        if mask is not None and mask.dim() == 3:
            mask = mask[:, None]
        self._latest = heads[0].detach(), heads[1].detach(), mask
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        return self.W_o(mixed.transpose(1, 2).flatten(2))

    @property
    def weights(self) -> Tensor | None:
        """Detached attention weights of the latest call, None before the first."""
        if self._latest is None:
            return None
        with torch.no_grad():
            return attention_weights(*self._latest)

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_latest": None}  # a copy or a saved module carries no activations


# ------------------------------------------------------------------------------------- 05 Add & Norm
class LayerNorm(nn.LayerNorm):
    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__(d_model, eps=eps)


class RMSNorm(nn.RMSNorm):
    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__(d_model, eps=eps)


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))), the order of the original paper."""

    takes_parts = True

    def __init__(self, d_model: int, dropout: float = 0.0, *, parts: Parts | None = None):
        super().__init__()
        self.norm = build(parts, "LayerNorm", d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(torch.add(x, self.dropout(sublayer(x))))


class PreNorm(PostNorm):
    """x + dropout(sublayer(norm(x))), which trains without warmup."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.add(x, self.dropout(sublayer(self.norm(x))))


def add_and_norm(parts: Parts | None, norm: str, d_model: int) -> nn.Module:
    """The wrapper around one sublayer: PostNorm or PreNorm, by its short name."""
    names = {"post": "PostNorm", "pre": "PreNorm"}
    if norm not in names:
        raise ValueError(_('norm is "post" or "pre", not {norm!r}').format(norm=norm))
    return build(parts, names[norm], d_model)


# ------------------------------------------------------------------------------------- 06 encoder
class FeedForward(nn.Module):
    """`[..., d] -> [..., d]` through `d_ff` units with ReLU, each position by itself."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(F.relu(self.linear1(x), inplace=True))


class SwiGLU(nn.Module):
    """The gated feed-forward block of Llama and Qwen (Shazeer, "GLU Variants Improve Transformer")."""

    def __init__(self, d_model: int, d_ff: int | None = None):
        super().__init__()
        d_ff = 8 * d_model // 3 if d_ff is None else d_ff
        self.w1, self.w3 = (nn.Linear(d_model, d_ff, bias=False) for _ in range(2))
        self.w2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)).mul(self.w3(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with Add & Norm: `x [B, n, d] -> [B, n, d]`."""

    takes_parts = True

    def __init__(self, d_model: int, h: int, d_ff: int, norm: str = "post", *, parts: Parts | None = None):
        super().__init__()
        self.attn = build(parts, "MultiHeadAttention", d_model, h)
        self.ffn = build(parts, "FeedForward", d_model, d_ff)
        self.norm1, self.norm2 = (add_and_norm(parts, norm, d_model) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x, lambda y: self.attn(y, y, y, mask))
        return self.norm2(x, self.ffn)


class Stack(nn.Module):
    """`N` layers of one kind, and after Pre-LN layers one more norm, since their sum is not normalised."""

    takes_parts = True
    layer = ""

    def __init__(
        self, d_model: int, h: int, d_ff: int, N: int, norm: str = "post", *, parts: Parts | None = None
    ):
        super().__init__()
        self.layers = nn.ModuleList(build(parts, self.layer, d_model, h, d_ff, norm) for _ in range(N))
        self.norm = build(parts, "LayerNorm", d_model) if norm == "pre" else None

    def forward(self, x: Tensor, *others: Tensor | None, **masks: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, *others, **masks)
        return x if self.norm is None else self.norm(x)


class Encoder(Stack):
    """`N` encoder layers: `forward(x [B, n, d], mask=None) -> [B, n, d]`."""

    layer = "EncoderLayer"


# ------------------------------------------------------------------------------------- 07 decoder
def shift_right(target: Tensor, bos_id: int) -> Tensor:
    """The decoder's input `[B, m]` for predicting `target [B, m]`."""
    return F.pad(target, (1, -1), value=bos_id)


def causal_mask(m: int) -> Tensor:
    """`bool [1, 1, m, m]`: position i may attend to itself and to what stands before it."""
    return nn.Transformer.generate_square_subsequent_mask(m).isfinite().view(1, 1, m, m)


def padding_mask(ids: Tensor, pad_id: int = PAD) -> Tensor:
    """`bool [B, 1, 1, n]`: every position may attend to real tokens only."""
    return ids.ne(pad_id).view(ids.size(0), 1, 1, -1)


def target_mask(ids: Tensor, pad_id: int = PAD) -> Tensor:
    """`bool [B, 1, m, m]`: both of the above."""
    return padding_mask(ids, pad_id).logical_and(causal_mask(ids.size(1)).to(ids.device))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to `memory`, feed-forward: `x [B, m, d] -> [B, m, d]`."""

    takes_parts = True

    def __init__(self, d_model: int, h: int, d_ff: int, norm: str = "post", *, parts: Parts | None = None):
        super().__init__()
        self.self_attn = build(parts, "MultiHeadAttention", d_model, h)
        self.cross_attn = build(parts, "MultiHeadAttention", d_model, h)
        self.ffn = build(parts, "FeedForward", d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (add_and_norm(parts, norm, d_model) for _ in range(3))

    def forward(
        self, x: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.norm1(x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))
        return self.norm3(x, self.ffn)


class Decoder(Stack):
    """`N` decoder layers: `forward(x [B, m, d], memory [B, n, d], tgt_mask=None, memory_mask=None)`."""

    layer = "DecoderLayer"


# ------------------------------------------------------------------------------------- 08 output
class OutputLayer(nn.Module):
    """`x [B, m, d] -> logits [B, m, V]`."""

    def __init__(self, d_model: int, vocab_size: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)


def tie_weights(embedding: nn.Module, output: nn.Module) -> None:
    """Let `output.proj` use the table of `embedding.emb`: one parameter for both."""
    output.proj.register_parameter("weight", embedding.emb.weight)


def sequence_loss(logits: Tensor, target: Tensor, pad_id: int = PAD, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy in nats, the mean over real tokens of `logits [B, m, V]` against `target [B, m]`."""
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=label_smoothing
    )


class Transformer(nn.Module):
    """The encoder-decoder of "Attention Is All You Need".

    `forward(src [B, n], tgt_in [B, m]) -> logits [B, m, V]` makes its own masks from the padding. The
    target embedding and the output layer are one tensor. `parts` replaces finished parts by name,
    functions included.
    """

    takes_parts = True

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int = 512,
        h: int = 8,
        d_ff: int = 2048,
        N: int = 6,
        max_len: int = 512,
        dropout: float = 0.1,
        norm: str = "post",
        *,
        parts: Parts | None = None,
    ):
        super().__init__()
        self.src_emb = build(parts, "TokenEmbedding", src_vocab, d_model)
        self.tgt_emb = build(parts, "TokenEmbedding", tgt_vocab, d_model)
        self.pos = build(parts, "PositionalEncoding", d_model, max_len)
        self.encoder = build(parts, "Encoder", d_model, h, d_ff, N, norm)
        self.decoder = build(parts, "Decoder", d_model, h, d_ff, N, norm)
        self.output = build(parts, "OutputLayer", d_model, tgt_vocab)
        self.dropout = nn.Dropout(dropout)
        self._parts = parts
        build(parts, "tie_weights", self.tgt_emb, self.output)
        initialise(self, dropout)

    def encode(self, src: Tensor) -> Tensor:
        """`src [B, n] -> memory [B, n, d]`."""
        x = self.dropout(self.pos(self.src_emb(src)))
        return self.encoder(x, mask=build(self._parts, "padding_mask", src))

    def decode(self, tgt_in: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        """`tgt_in [B, m] -> logits [B, m, V]`; `src` only tells where the padding of `memory` is."""
        x = self.dropout(self.pos(self.tgt_emb(tgt_in)))
        masks = {
            "tgt_mask": build(self._parts, "target_mask", tgt_in),
            "memory_mask": build(self._parts, "padding_mask", src),
        }
        return self.output(self.decoder(x, memory, **masks))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        return self.decode(tgt_in, self.encode(src), src)


def initialise(model: nn.Module, dropout: float = 0.0) -> None:
    """Start weights and dropout of a whole Transformer, whoever wrote its parts.

    Matrices start as in Glorot and Bengio (uniform, variance 2 / (fan_in + fan_out)), so activations and
    gradients keep their scale from layer to layer. W_q, W_k and W_v count as one matrix `[3d, d]`, as in
    `nn.MultiheadAttention`: half the variance, so attention starts softer, and the course's model learned
    faster (after one pass 94.8 % of held-out sentences exact instead of 93.5 %).
    Embeddings start with variance 1/d: after the factor √d they have unit scale beside the position code,
    and a tied output layer starts with logits near 1.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, 0.5**0.5 if name.endswith(("W_q", "W_k", "W_v")) else 1.0)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Dropout):
            module.p = dropout
    for module in model.modules():  # last, since a tied table is an embedding and a matrix
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


# ------------------------------------------------------------------------------------- 08 decoding
def greedy(
    next_log_probs: Callable[[list[int]], Tensor], bos_id: int, eos_id: int, max_len: int
) -> list[int]:
    """The likeliest next token, again and again: a beam of one."""
    return beam_search(next_log_probs, bos_id, eos_id, 1, max_len)


def sampling_probs(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """`logits [V] -> probabilities [V]` after temperature, then `top_k`, then `top_p`."""
    if temperature == 0:
        return F.one_hot(logits.argmax(), logits.numel()).to(logits.dtype)
    ranked, order = torch.softmax(logits / temperature, -1).sort(descending=True, stable=True)
    if top_k is not None:
        ranked = F.normalize(
            ranked * (torch.arange(ranked.numel(), device=ranked.device) < top_k), p=1, dim=0
        )
    if top_p is not None:
        before = F.pad(ranked.cumsum(0), (1, -1))  # the mass of all likelier tokens
        ranked = F.normalize(ranked * (before < top_p), p=1, dim=0)
    return torch.empty_like(ranked).scatter_(0, order, ranked)


def beam_search(
    next_log_probs: Callable[[list[int]], Tensor],
    bos_id: int,
    eos_id: int,
    width: int,
    max_len: int,
    length_penalty: float = 0.0,
) -> list[int]:
    """The best hypothesis by (sum of log-probabilities) / length^penalty, from a beam of `width`."""
    beam, done = [((), 0.0)], []
    for _step in range(max_len):
        totals = torch.stack([next_log_probs([bos_id, *ids]) + total for ids, total in beam])
        best = totals.flatten().sort(descending=True, stable=True)
        rows = [divmod(i, totals.size(1)) for i in best.indices[:width].tolist()]
        grown = [((*beam[r][0], t), s) for (r, t), s in zip(rows, best.values.tolist(), strict=False)]
        done += [x for x in grown if x[0][-1] == eos_id]
        beam = [x for x in grown if x[0][-1] != eos_id]
        if not beam:
            break
    return list(max(done + beam, key=lambda x: x[1] / len(x[0]) ** length_penalty)[0]) if max_len else []
