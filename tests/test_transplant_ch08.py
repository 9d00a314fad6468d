"""The lesson's Transformer computes what torch.nn.Transformer does, with the same weights."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from grader.authoring.build import ROOT
from grader.authoring.selftest import namespace
from grader.exercises.ch07._common import torch_state

D, H, D_FF, N, B, M, SRC, V_SRC, V_TGT = 24, 4, 40, 3, 3, 6, 9, 31, 37


@pytest.fixture(scope="module")
def lesson():
    return namespace(ROOT / "solutions" / "08_output" / "08_output.py")


def _model(lesson, norm: str, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    model = lesson["Transformer"](V_SRC, V_TGT, D, H, D_FF, N, max_len=20, dropout=dropout, norm=norm)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4)  # no bias stays 0 and no norm's weight stays 1
    return model.double().eval()


def _torchs(model: nn.Module, norm: str) -> nn.Transformer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that Pre-LN keeps it from a faster path
        theirs = nn.Transformer(
            D, H, N, N, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
        )
    theirs.encoder.enable_nested_tensor = False
    if norm == "post":  # torch ends both stacks in one more norm, whatever the order; the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.encoder.load_state_dict(torch_state(model.encoder))
    theirs.decoder.load_state_dict(torch_state(model.decoder))
    return theirs.eval()


def _ids() -> tuple[torch.Tensor, torch.Tensor]:
    """Source and target ids, with sentences of different lengths in both."""
    torch.manual_seed(2)
    src, tgt_in = torch.randint(3, V_SRC, (B, SRC)), torch.randint(3, V_TGT, (B, M))
    src[0, 8:], src[2, 4:], tgt_in[0, 3:], tgt_in[1, 5:] = 0, 0, 0, 0
    return src, tgt_in


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_transformer_equals_torch(lesson, norm):
    model, (src, tgt_in) = _model(lesson, norm), _ids()
    codes = model.pos.pe.double()

    def embed(embedding: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, embedding.emb.weight) * math.sqrt(D) + codes[: ids.size(1)]

    rows = _torchs(model, norm)(
        embed(model.src_emb, src),
        embed(model.tgt_emb, tgt_in),
        tgt_mask=torch.ones(M, M, dtype=torch.bool).triu(1),
        src_key_padding_mask=src == 0,
        tgt_key_padding_mask=tgt_in == 0,
        memory_key_padding_mask=src == 0,
    )
    torch.testing.assert_close(model(src, tgt_in), rows @ model.tgt_emb.emb.weight.T, rtol=1e-9, atol=1e-9)


def test_padding_changes_nothing_for_real_tokens(lesson):
    model, (src, tgt_in) = _model(lesson, "post"), _ids()
    whole = model(src, tgt_in)
    alone = model(src[2:, :4], tgt_in[2:])
    torch.testing.assert_close(whole[2:], alone, rtol=1e-9, atol=1e-9)


def test_loss_equals_torch(lesson):
    torch.manual_seed(3)
    logits, target = torch.randn(B, M, V_TGT, requires_grad=True), _ids()[1]
    for epsilon in (0.0, 0.1):
        expected = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=0, label_smoothing=epsilon)
        own = lesson["sequence_loss"](logits, target, label_smoothing=epsilon)
        torch.testing.assert_close(own, expected)
        torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (own, expected)))


def test_a_model_written_token_by_token_agrees_with_itself(lesson):
    """Greedy on the model's decode gives the tokens that one parallel pass over the result predicts."""
    model, (src, _) = _model(lesson, "pre"), _ids()
    memory = model.encode(src[:1])

    def next_log_probs(prefix: list[int]) -> torch.Tensor:
        return model.decode(torch.tensor([prefix]), memory, src[:1])[0, -1].log_softmax(-1)

    written = lesson["greedy"](next_log_probs, 1, 2, 7)
    assert written == lesson["beam_search"](next_log_probs, 1, 2, 1, 7)
    at_once = model(src[:1], torch.tensor([[1, *written[:-1]]])).argmax(-1)[0].tolist()
    # Token 0 is padding to the model's masks, so a written 0 would be hidden from later places in both ways.
    assert at_once == written
