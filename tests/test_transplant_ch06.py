"""The encoder that the lesson leads to, given torch's weights, computes what torch's encoder computes."""

import pytest
import torch
from torch import nn

from grader.authoring.build import ROOT
from grader.authoring.selftest import namespace

D, H, D_FF, N, B, TOKENS = 12, 4, 30, 3, 5, 7
CHAPTER = "06_feed_forward"


@pytest.fixture(scope="module")
def lesson() -> dict:
    """What the lesson's setup and TODO cells define, solved."""
    return namespace(ROOT / "solutions" / CHAPTER / f"{CHAPTER}.py")


def torch_encoder(norm: str) -> nn.TransformerEncoder:
    """torch's encoder with random weights everywhere, in norms and biases too."""
    layer = nn.TransformerEncoderLayer(D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    final = nn.LayerNorm(D) if norm == "pre" else None
    encoder = nn.TransformerEncoder(layer, N, final, enable_nested_tensor=False)
    for parameter in encoder.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return encoder


def contract_names(theirs: nn.TransformerEncoder) -> dict[str, torch.Tensor]:
    """torch's tensors under the contract's names (attn.W_q.weight, ffn.linear1.weight, norm1.weight, ...)."""
    renamed = {}
    for name, tensor in theirs.state_dict().items():
        if "in_proj" in name:
            kind = name.rsplit("_", 1)[1]  # weight or bias, the three matrices one above the other
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                renamed[name.replace(f"self_attn.in_proj_{kind}", f"attn.W_{part}.{kind}")] = piece
        else:
            name = name.replace("self_attn.out_proj", "attn.W_o").replace(".linear", ".ffn.linear")
            renamed[name] = tensor
    return renamed


def load(mine: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Load strictly; a norm inside a wrapper (norm1.norm.weight) counts as norm1.weight."""
    own = {name: name for name in mine.state_dict()}
    own |= {
        name: name.replace(f"norm{i}.norm.", f"norm{i}.")
        for i in (1, 2)
        for name in own
        if f"norm{i}.norm." in name
    }
    mine.load_state_dict({name: tensors[plain] for name, plain in own.items()}, strict=True)
    assert sorted(own.values()) == sorted(tensors), "every one of torch's tensors has a place"


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("padded", [False, True])
def test_encoder_equals_torchs(lesson, norm, padded):
    torch.manual_seed(1)
    theirs, mine = torch_encoder(norm), lesson["Encoder"](D, H, D_FF, N, norm)
    load(mine, contract_names(theirs))
    x = torch.randn(B, TOKENS, D)
    real = torch.arange(TOKENS) < torch.tensor([7, 5, 3, 6, 1])[:, None] if padded else None  # [B, TOKENS]
    expected = theirs(x, src_key_padding_mask=None if real is None else ~real)
    found = mine(x, None if real is None else real[:, None, None, :])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    if padded:
        assert not torch.allclose(mine(x), expected, atol=0.1), "the mask makes no difference: a vacuous test"


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layer_and_its_gradients_equal_torchs(lesson, norm):
    torch.manual_seed(2)
    theirs, mine = torch_encoder(norm), lesson["Encoder"](D, H, D_FF, N, norm)
    load(mine, contract_names(theirs))
    causal = torch.ones(TOKENS, TOKENS).tril().bool()
    inputs = [
        torch.linspace(-1, 1, B * TOKENS * D).reshape(B, TOKENS, D).sin().requires_grad_() for _ in range(2)
    ]
    expected, found = theirs.layers[0](inputs[0], src_mask=~causal), mine.layers[0](inputs[1], causal)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    cotangent = torch.randn_like(found)
    gradients = [
        torch.autograd.grad((y * cotangent).sum(), x)[0]
        for y, x in ((expected, inputs[0]), (found, inputs[1]))
    ]
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-3)


def test_orders_differ(lesson):
    """The same weights in the other order give another result: the two tests above tell them apart."""
    torch.manual_seed(3)
    theirs, mine = torch_encoder("post"), lesson["EncoderLayer"](D, H, D_FF, "pre")
    weights = {
        name.removeprefix("layers.0."): t for name, t in contract_names(theirs).items() if "layers.0." in name
    }
    load(mine, weights)
    x = torch.randn(B, TOKENS, D)
    assert not torch.allclose(mine(x), theirs.layers[0](x), atol=0.1)


def test_formula_counts_what_the_encoder_holds(lesson):
    held = sum(p.numel() for p in lesson["Encoder"](D, H, D_FF, N).parameters())
    assert lesson["encoder_parameters"](D, D_FF, N) == held
    assert lesson["encoder_parameters"](512, 2048, 6) == 18_914_304
