"""The lesson's decoder computes what torch.nn's does, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from grader.authoring.build import ROOT
from grader.authoring.selftest import namespace
from grader.exercises.ch07._common import torch_state

D, H, D_FF, N, B, M, SRC = 24, 4, 40, 3, 3, 6, 9


@pytest.fixture(scope="module")
def lesson():
    return namespace(ROOT / "solutions" / "07_decoder" / "07_decoder.py")


def _randomise(module: nn.Module) -> nn.Module:
    """Give every parameter a random value, so that no bias is 0 and no norm's weight is 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.4)
    return module.double().eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_equals_torch(lesson, norm):
    torch.manual_seed(1)
    mine = _randomise(lesson["Decoder"](D, H, D_FF, N, norm))
    layer = nn.TransformerDecoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    final = nn.LayerNorm(D, dtype=torch.float64) if norm == "pre" else None
    theirs = nn.TransformerDecoder(layer, N, final).eval()
    theirs.load_state_dict(torch_state(mine))

    ids, src = torch.randint(1, 9, (B, M)), torch.randint(1, 9, (B, SRC))
    ids[0, 3:], ids[1, 5:], src[0, 8:], src[2, 4:] = 0, 0, 0, 0  # sentences of different lengths
    x, memory = (torch.randn(B, length, D, dtype=torch.float64) for length in (M, SRC))
    out = mine(x, memory, lesson["target_mask"](ids), lesson["padding_mask"](src))
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(M, M, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=ids == 0,
        memory_key_padding_mask=src == 0,
    )
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
