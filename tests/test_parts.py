"""The finished parts give what `torch.nn` gives, and keep the interfaces of the course map."""

import copy
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import parts
from transformer_lab.parts import PAD

D, H, D_FF, N = 24, 4, 40, 2
B, n, m = 3, 7, 5  # batch, source and target length
NORMS = ("post", "pre")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-4)


# ------------------------------------------------------------------------------------- transplants
def give_attention(ours: parts.MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        theirs.out_proj.bias.normal_()
        for mine, weight, bias in zip(
            (ours.W_q, ours.W_k, ours.W_v),
            theirs.in_proj_weight.chunk(3),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            mine.weight.copy_(weight)
            mine.bias.copy_(bias)
    ours.W_o.load_state_dict(theirs.out_proj.state_dict())


def give_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    nn.init.normal_(theirs.weight, 1, 0.3)
    nn.init.normal_(theirs.bias, 0, 0.3)
    ours.load_state_dict(theirs.state_dict())


def give_layer(ours, theirs) -> None:
    if isinstance(theirs, nn.TransformerDecoderLayer):
        give_attention(ours.self_attn, theirs.self_attn)
        give_attention(ours.cross_attn, theirs.multihead_attn)
        give_norm(ours.norm3.norm, theirs.norm3)
    else:
        give_attention(ours.attn, theirs.self_attn)
    give_norm(ours.norm1.norm, theirs.norm1)
    give_norm(ours.norm2.norm, theirs.norm2)
    ours.ffn.linear1.load_state_dict(theirs.linear1.state_dict())
    ours.ffn.linear2.load_state_dict(theirs.linear2.state_dict())


def give_stack(ours, theirs, norm: str) -> None:
    for mine, layer in zip(ours.layers, theirs.layers, strict=True):
        give_layer(mine, layer)
    if norm == "pre":
        give_norm(ours.norm, theirs.norm)
    else:
        theirs.norm = None  # torch always adds a final norm; after Post-LN there is none in the paper


def ids(vocab: int, length: int) -> torch.Tensor:
    """Random tokens with padding of a different length in each row."""
    made = torch.randint(4, vocab, (B, length))
    for row in range(B):
        made[row, length - row :] = PAD
    return made


# ------------------------------------------------------------------------------------- attention
@pytest.mark.parametrize("masked", [None, "2-D", "3-D", "4-D"])
def test_multi_head_attention_is_that_of_torch(masked):
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    ours = parts.MultiHeadAttention(D, H)
    give_attention(ours, theirs)
    q, k, v = torch.randn(B, m, D), torch.randn(B, n, D), torch.randn(B, n, D)
    allowed = torch.rand(B, H, m, n) < 0.6
    allowed[..., 0] = True
    mask = {None: None, "2-D": allowed[0, 0], "3-D": allowed[:, 0], "4-D": allowed}[masked]
    forbidden = {None: None, "2-D": ~allowed[0, 0], "4-D": ~allowed.flatten(0, 1)}.get(masked)
    if masked == "3-D":
        forbidden = ~allowed[:, :1].expand(B, H, m, n).flatten(0, 1)
    out, weights = theirs(q, k, v, attn_mask=forbidden, average_attn_weights=False)
    close(ours(q, k, v, mask), out)
    close(ours.weights, weights)
    assert ours.weights.shape == (B, H, m, n) and not ours.weights.requires_grad


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="does not divide"):
        parts.MultiHeadAttention(10, 3)


def test_weights_follow_the_latest_call_and_copies_carry_none():
    attn = parts.MultiHeadAttention(D, H)
    assert attn.weights is None
    attn(*[torch.randn(B, m, D)] * 3)
    attn(*[torch.randn(B, n, D)] * 3)
    assert attn.weights.shape == (B, H, n, n)
    assert copy.deepcopy(attn).weights is None
    assert all("latest" not in name for name in attn.state_dict())


def test_attention_takes_any_lengths_and_masks_to_exactly_zero():
    q, k, v = torch.randn(2, 3, m, 6), torch.randn(2, 3, n, 6), torch.randn(2, 3, n, 9)
    mask = torch.ones(m, n, dtype=torch.bool)
    mask[:, -2:] = False
    out, weights = parts.attention(q, k, v, mask)
    by_hand = (q @ k.mT / math.sqrt(6)).masked_fill(~mask, -math.inf).softmax(-1)
    close(weights, by_hand)
    close(out, by_hand @ v)
    assert (weights[..., -2:] == 0).all()


def test_self_attention():
    one = parts.SelfAttention(D)
    x = torch.randn(B, n, D)
    close(one(x), parts.attention(one.W_q(x), one.W_k(x), one.W_v(x))[0])


# ------------------------------------------------------------------------------------- layers and stacks
@pytest.mark.parametrize("norm", NORMS)
def test_encoder_is_that_of_torch(norm):
    layer = nn.TransformerEncoderLayer(D, H, D_FF, 0.0, batch_first=True, norm_first=norm == "pre")
    theirs = nn.TransformerEncoder(layer, N, nn.LayerNorm(D), enable_nested_tensor=False)
    ours = parts.Encoder(D, H, D_FF, N, norm)
    give_stack(ours, theirs, norm)
    x, real = torch.randn(B, n, D), parts.padding_mask(ids(9, n))
    close(ours(x, real), theirs(x, src_key_padding_mask=~real[:, 0, 0]))
    close(ours.layers[0](x, real), theirs.layers[0](x, src_key_padding_mask=~real[:, 0, 0]))
    close(ours(x), theirs(x))


@pytest.mark.parametrize("norm", NORMS)
def test_decoder_is_that_of_torch(norm):
    layer = nn.TransformerDecoderLayer(D, H, D_FF, 0.0, batch_first=True, norm_first=norm == "pre")
    theirs = nn.TransformerDecoder(layer, N, nn.LayerNorm(D))
    ours = parts.Decoder(D, H, D_FF, N, norm)
    give_stack(ours, theirs, norm)
    x, memory = torch.randn(B, m, D), torch.randn(B, n, D)
    source, target = ids(9, n), ids(9, m)
    got = ours(x, memory, parts.target_mask(target), parts.padding_mask(source))
    expected = theirs(
        x,
        memory,
        tgt_mask=~parts.causal_mask(m)[0, 0],
        tgt_key_padding_mask=target == PAD,
        memory_key_padding_mask=source == PAD,
    )
    close(got, expected)
    close(ours(x, memory), theirs(x, memory))


class TorchTransformer(nn.Module):
    """The same model with `torch.nn.Transformer` in its middle."""

    def __init__(self, ours: parts.Transformer, norm: str):
        super().__init__()
        self.ours = ours
        self.core = nn.Transformer(D, H, N, N, D_FF, 0.0, batch_first=True, norm_first=norm == "pre")
        give_stack(ours.encoder, self.core.encoder, norm)
        give_stack(ours.decoder, self.core.decoder, norm)

    def forward(self, src, tgt_in):
        x, y = (self.ours.pos(emb(i)) for emb, i in ((self.ours.src_emb, src), (self.ours.tgt_emb, tgt_in)))
        hidden = self.core(
            x,
            y,
            tgt_mask=~parts.causal_mask(tgt_in.size(1))[0, 0],
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return hidden @ self.ours.tgt_emb.emb.weight.T


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch speaks of a speed-up it cannot use
@pytest.mark.parametrize("norm", NORMS)
def test_transformer_is_that_of_torch(norm):
    ours = parts.Transformer(11, 13, D, H, D_FF, N, 20, 0.0, norm)
    theirs = TorchTransformer(ours, norm)
    src, tgt_in = ids(11, n), ids(13, m)
    close(ours(src, tgt_in), theirs(src, tgt_in), atol=2e-5)
    close(ours.decode(tgt_in, ours.encode(src), src), ours(src, tgt_in))


def test_padding_changes_nothing_for_real_tokens():
    model = parts.Transformer(11, 13, D, H, D_FF, N, 20, 0.0)
    src, tgt_in = torch.randint(4, 11, (1, n)), torch.randint(4, 13, (1, m))
    longer = model(F.pad(src, (0, 3)), F.pad(tgt_in, (0, 2)))
    close(longer[:, :m], model(src, tgt_in))


def test_the_future_does_not_leak():
    model = parts.Transformer(11, 13, D, H, D_FF, N, 20, 0.0)
    src, tgt_in = ids(11, n), torch.randint(4, 13, (B, m))
    changed = tgt_in.clone()
    changed[:, 3:] = 4
    close(model(src, changed)[:, :3], model(src, tgt_in)[:, :3])


def test_an_unknown_norm_is_refused():
    for make in (parts.EncoderLayer, parts.DecoderLayer):
        with pytest.raises(ValueError, match="middle"):
            make(D, H, D_FF, "middle")


def test_dropout_reaches_every_sublayer_and_stops_in_eval():
    model = parts.Transformer(11, 13, D, H, D_FF, N, 20, dropout=0.3)
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.3}
    model.eval()
    src, tgt_in = ids(11, n), ids(13, m)
    assert torch.equal(model(src, tgt_in), model(src, tgt_in))


# ------------------------------------------------------------------------------------- parameters
@pytest.mark.parametrize("norm", NORMS)
def test_parameter_counts(norm):
    def count(module):
        return sum(p.numel() for p in module.parameters())

    attention, ffn, layer_norm = 4 * D * D + 4 * D, 2 * D * D_FF + D_FF + D, 2 * D
    final = layer_norm if norm == "pre" else 0
    encoder = N * (attention + ffn + 2 * layer_norm) + final
    decoder = N * (2 * attention + ffn + 3 * layer_norm) + final
    assert count(parts.MultiHeadAttention(D, 1)) == count(parts.MultiHeadAttention(D, H)) == attention
    assert count(parts.Encoder(D, H, D_FF, N, norm)) == encoder
    assert count(parts.Decoder(D, H, D_FF, N, norm)) == decoder
    tied = count(parts.Transformer(11, 13, D, H, D_FF, N, norm=norm))
    assert tied == (11 + 13) * D + encoder + decoder  # the output layer is the target embedding


def test_tied_weights_are_one_tensor():
    emb, out = parts.TokenEmbedding(13, D), parts.OutputLayer(D, 13)
    parts.tie_weights(emb, out)
    assert out.proj.weight is emb.emb.weight
    assert out(torch.randn(B, m, D)).shape == (B, m, 13)


def test_start_scale():
    model = parts.Transformer(400, 400, 64, 4, 128, 2)
    x = model.src_emb(torch.arange(4, 400)[None])
    assert x.std().item() == pytest.approx(1, abs=0.05)
    src = torch.randint(4, 400, (8, 10))
    assert 0.3 < model.eval()(src, src).std() < 3


# ------------------------------------------------------------------------------------- small parts
def test_embedding_and_positions():
    emb = parts.TokenEmbedding(9, 16)
    some = torch.randint(0, 9, (B, n))
    close(emb(some), emb.emb.weight[some] * 4)
    for d in (2, 16, 7):
        pe = parts.PositionalEncoding(d, 50).pe
        for p, i in ((0, 0), (49, 0), (13, (d - 1) // 2)):
            angle = p / 10000 ** (2 * i / d)
            assert pe[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            if 2 * i + 1 < d:
                assert pe[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    code = parts.PositionalEncoding(16, 50)
    x = torch.randn(B, n, 16)
    close(code(x), x + code.pe[:n])
    assert not list(code.parameters())
    learned = parts.LearnedPositionalEncoding(16, n)
    close(learned(x), x + learned.pos.weight)
    with pytest.raises(ValueError, match="positions"):
        learned(torch.randn(B, n + 1, 16))


def test_vocab_and_encode():
    vocab = parts.build_vocab([["b", "a"], ["a", "c"]])
    assert vocab == {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "b": 4, "a": 5, "c": 6}
    assert parts.encode([["a", "x", "b"], ["c"]], vocab).tolist() == [[5, 3, 4], [6, 0, 0]]


def test_norms():
    x = torch.randn(B, n, D)
    close(parts.LayerNorm(D)(x), F.layer_norm(x, (D,)))
    close(parts.RMSNorm(D)(x), x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt())
    post, pre, double = parts.PostNorm(D), parts.PreNorm(D), lambda y: 2 * y
    close(post(x, double), post.norm(3 * x))
    close(pre(x, double), x + 2 * pre.norm(x))


def test_feed_forward():
    x = torch.randn(B, n, D)
    ffn, glu = parts.FeedForward(D, D_FF), parts.SwiGLU(D)
    close(ffn(x), ffn.linear2(ffn.linear1(x).relu()))
    close(glu(x), glu.w2(F.silu(glu.w1(x)) * glu.w3(x)))
    assert glu.w1.out_features == 8 * D // 3 and glu.w2.bias is None


def test_masks():
    target = torch.tensor([[5, 6, 0], [5, 0, 0]])
    assert parts.shift_right(target, 1).tolist() == [[1, 5, 6], [1, 5, 0]]
    causal = parts.causal_mask(3)
    assert causal.dtype == torch.bool and causal.shape == (1, 1, 3, 3)
    assert causal[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert parts.padding_mask(target).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]
    assert torch.equal(parts.target_mask(target), parts.padding_mask(target) & causal)
    assert target.tolist() == [[5, 6, 0], [5, 0, 0]]


def test_sequence_loss_averages_over_real_tokens():
    logits, target = torch.randn(B, m, 13), ids(13, m)
    real = target != PAD
    nll = -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    close(parts.sequence_loss(logits, target), nll[real].mean())
    smooth = 0.9 * nll - 0.1 * logits.log_softmax(-1).mean(-1)
    close(parts.sequence_loss(logits, target, label_smoothing=0.1), smooth[real].mean())


# ------------------------------------------------------------------------------------- injection
def test_signature_is_the_contract():
    names = list(inspect.signature(parts.Transformer).parameters.values())
    given = [(p.name, p.default) for p in names if p.kind is p.POSITIONAL_OR_KEYWORD]
    empty = inspect.Parameter.empty
    assert given == [
        ("src_vocab", empty),
        ("tgt_vocab", empty),
        ("d_model", 512),
        ("h", 8),
        ("d_ff", 2048),
        ("N", 6),
        ("max_len", 512),
        ("dropout", 0.1),
        ("norm", "post"),
    ]


class OwnAttention(parts.MultiHeadAttention):
    pass


class OwnDecoderLayer(parts.DecoderLayer):
    takes_parts = False  # a learner's layer knows nothing of `parts`

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__(d_model, h, d_ff, norm)


def test_own_parts_take_the_place_of_finished_ones():
    own = {"MultiHeadAttention": OwnAttention}
    model = parts.Transformer(11, 13, D, H, D_FF, N, parts=own)
    attentions = [x for x in model.modules() if isinstance(x, parts.MultiHeadAttention)]
    assert len(attentions) == 3 * N and all(type(x) is OwnAttention for x in attentions)
    model = parts.Transformer(11, 13, D, H, D_FF, N, parts={**own, "DecoderLayer": OwnDecoderLayer})
    assert type(model.encoder.layers[0].attn) is OwnAttention
    assert type(model.decoder.layers[0].self_attn) is parts.MultiHeadAttention


def test_own_functions_are_used_too():
    calls = []

    def target_mask(tokens):
        calls.append(tokens.shape)
        return parts.target_mask(tokens)

    model = parts.Transformer(11, 13, D, H, D_FF, N, parts={"target_mask": target_mask})
    model(ids(11, n), ids(13, m))
    assert calls == [(B, m)]


# ------------------------------------------------------------------------------------- decoding
TABLE = {  # greedy takes a (0.6) and ends with 0.6 · 0.4; the better sentence begins with b
    (): {"a": 0.6, "b": 0.4},
    ("a",): {"a": 0.3, "b": 0.3, ".": 0.4},
    ("b",): {"b": 0.05, ".": 0.95},
}
SYMBOLS = ["_", "<", ".", "a", "b"]


def table_log_probs(prefix):
    row = TABLE.get(tuple(SYMBOLS[i] for i in prefix[1:]), {".": 1.0})
    return torch.tensor([row.get(symbol, 0.0) for symbol in SYMBOLS]).log()


def say(ids_):
    return "".join(SYMBOLS[i] for i in ids_)


def test_greedy_and_beam_search():
    assert say(parts.greedy(table_log_probs, 1, 2, 5)) == "a."
    assert say(parts.beam_search(table_log_probs, 1, 2, 1, 5)) == "a."
    assert say(parts.beam_search(table_log_probs, 1, 2, 2, 5)) == "b."
    assert say(parts.greedy(table_log_probs, 1, 2, 1)) == "a"  # max_len reached before the end
    assert parts.greedy(table_log_probs, 1, 2, 0) == []


def test_length_penalty_favours_longer_sentences():
    def log_probs(prefix):  # "." at once 0.5; "a a ." 0.5 · 0.9 · 0.9
        row = (
            [0, 0, 0.5, 0.5, 0]
            if len(prefix) == 1
            else [0, 0, 0.1, 0.9, 0]
            if len(prefix) == 2
            else [0, 0, 1, 0, 0]
        )
        return torch.tensor(row).log()

    assert say(parts.beam_search(log_probs, 1, 2, 3, 5)) == "."
    assert say(parts.beam_search(log_probs, 1, 2, 3, 5, length_penalty=1.0)) == "aa."


def test_sampling_filters():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.5])
    close(parts.sampling_probs(logits, 0.7), (logits / 0.7).softmax(0))
    assert parts.sampling_probs(logits, 0).tolist() == [1, 0, 0, 0, 0]
    two = parts.sampling_probs(logits, top_k=2)
    close(two, torch.tensor([2.0, -math.inf, -math.inf, -math.inf, 1.5]).softmax(0))
    probs = logits.softmax(0)  # .45 .17 .06 .02 .28
    nucleus = parts.sampling_probs(logits, top_p=0.6)
    close(
        nucleus, torch.where(torch.tensor([True, False, False, False, True]), probs, 0) / probs[[0, 4]].sum()
    )
    assert parts.sampling_probs(logits, top_p=0.01).tolist() == [1, 0, 0, 0, 0]
