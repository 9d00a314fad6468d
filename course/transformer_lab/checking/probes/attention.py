"""Probes of chapter 04: what an error names, weights from torch, and whether the future moves the past."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from transformer_lab.checking.probes.arguments import build, builder, plain
from transformer_lab.checking.probes.core import make_module, probe
from transformer_lab.checking.probes.problems import Trouble

NAMES = [f"W_{name}.{kind}" for name in "qkvo" for kind in ("weight", "bias")]  # the contract's


@probe("named in an error")
def _named_in_an_error(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Call the learner's function with arguments that do not fit together.

    inputs: args, and numbers: what the error's message has to name. Reports `unnamed`, those it does not.
    """
    said = ""
    try:
        symbol(*build(inputs["args"]))
    except NotImplementedError:  # a stub says so
        raise
    except Exception as error:
        said = str(error)
    values["unnamed"] = [
        number for number in inputs["numbers"] if str(number) not in re.findall(r"\d+", said)
    ]


@probe("from_torch")
def _from_torch(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Hand a torch.nn.MultiheadAttention to the learner's function and call the module that comes back.

    inputs: d_model, h, weights (torch's own names; without biases the module is made with bias=False),
    and args, kwargs of the call, its mask with True for "may attend".
    Reports the module's parameters, their values as attr.<name>, the output, the kept weights as
    attr.weights, and the names of torch's parameters that were changed.
    """
    mha = torch_attention(inputs["d_model"], inputs["h"], inputs["weights"])
    before = {name: value.detach().clone() for name, value in mha.named_parameters()}
    torch.manual_seed(0)  # what the learner's module draws must not depend on what torch's own drew
    module = symbol(mha)
    if not isinstance(module, nn.Module):
        raise Trouble("not_module", "from_torch(mha) has to return a MultiHeadAttention.")
    missing = [name for name in NAMES if name not in dict(module.named_parameters())]
    if missing:
        raise Trouble(
            "attributes",
            "The result has no {missing}: is it a MultiHeadAttention?",
            missing=", ".join(missing),
        )
    after = dict(mha.named_parameters())
    values["changed"] = [name for name, value in before.items() if not torch.equal(value, after[name])]
    values["parameters"] = [[name, list(p.shape)] for name, p in sorted(module.named_parameters())]
    values |= {f"attr.{name}": plain(p) for name, p in module.named_parameters()}
    values["out"] = plain(module.eval()(*build(inputs["args"]), **build(inputs.get("kwargs", {}))))
    values["attr.weights"] = plain(getattr(module, "weights", None))


@builder("torch attention")
def torch_attention(d_model: int, h: int, weights: dict[str, torch.Tensor]) -> nn.MultiheadAttention:
    """Return torch's own module, batch first and in eval mode, holding `weights` in their dtype."""
    bias = "in_proj_bias" in weights
    mha = nn.MultiheadAttention(d_model, h, bias=bias, batch_first=True)
    mha.to(weights["in_proj_weight"].dtype).load_state_dict(weights)
    return mha.eval()


@probe("future")
def _future(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Self-attention under a mask, twice: the second time the tokens from `start` on are other ones.

    inputs: make and weights (see make_module), x [B, n, d], others [B, n - start, d], start, mask.
    Reports `moved` [B, start, d]: how far the outputs of the tokens before `start` moved.
    """
    module = make_module(symbol, inputs, values)
    start, mask = inputs["start"], inputs["mask"]
    first = inputs["x"]
    second = torch.cat([first[:, :start], inputs["others"]], dim=1)
    with torch.no_grad():
        one, two = (module(x, x, x, mask.clone()) for x in (first.clone(), second))
    if not isinstance(one, torch.Tensor) or one.shape != first.shape:
        raise Trouble("shape", "The output has to be a tensor of shape {shape}.", shape=list(first.shape))
    values["moved"] = plain((two - one)[:, :start])
