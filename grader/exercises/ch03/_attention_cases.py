"""The cases of 3.6 attention: queries, keys and values of every shape, and masks that broadcast."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grader.exercises.draw import Draw
from transformer_lab.checking.probes.core import Case


def qkv(draw: Draw, lead: str = "B", **fixed: int) -> tuple[list, dict]:
    """Draw q, k and v with all axes of different lengths; `lead` names their leading axes ("", "B", "Bh")."""
    sizes = draw.sizes(B=(2, 3), h=(2, 4), n_q=(3, 5), n_k=(4, 6), d_k=(6, 8), d_v=(7, 9)) | fixed
    front = [sizes[axis] for axis in lead]
    shapes = ((sizes["n_q"], sizes["d_k"]), (sizes["n_k"], sizes["d_k"]), (sizes["n_k"], sizes["d_v"]))
    return [draw.normal(*front, *shape) for shape in shapes], sizes


def mask(draw: Draw, *shape: int) -> Tensor:
    """A random mask in which every row has a key that it may attend to and one that it may not."""
    drawn = draw.uniform(*shape) < 0.6
    for row in drawn.view(-1, shape[-1]):
        allowed = draw.size(0, shape[-1] - 1)
        row[allowed], row[allowed - 1] = True, False
    return drawn


def padding_mask(draw: Draw, sizes: dict, *shape: int) -> Tensor:
    """A padding mask [B, …, n_k]: sentences of different lengths, each of at least one token."""
    lengths = torch.tensor([draw.size(1, sizes["n_k"] - 1) for _ in range(sizes["B"])])
    return (torch.arange(sizes["n_k"]) < lengths[:, None]).view(sizes["B"], *shape, sizes["n_k"])


def call(inputs: list, allowed: Tensor | None = None, by_name: bool = False, **more) -> Case:
    if allowed is None:
        return Case("function", {"args": inputs, **more})
    named = {"kwargs": {"mask": allowed}} if by_name else {}
    return Case("function", {"args": inputs if by_name else [*inputs, allowed], **named, **more})


def equal(*axes: str) -> dict[str, int]:
    """Sizes for `qkv` in which these axes are equal: what guesses an axis by its length goes wrong elsewhere."""
    return dict.fromkeys(axes, 4)


ALL = ("B", "h", "n_q", "n_k", "d_k", "d_v")


def plain(draw: Draw) -> list[Case]:
    same = [("n_q", "n_k"), ("d_k", "d_v"), ("B", "n_q", "n_k"), ("n_k", "d_k"), ALL]
    drawn = [call(qkv(draw)[0]), Case("function", {"args": [*qkv(draw)[0], None]})]
    return [*drawn, *(call(qkv(draw, **equal(*axes))[0]) for axes in same)]


def masked(draw: Draw) -> list[Case]:
    (one, s), (each, t) = qkv(draw), qkv(draw)
    return [
        call(one, mask(draw, s["n_q"], s["n_k"])),
        call(each, mask(draw, t["B"], t["n_q"], t["n_k"]), by_name=True),
    ]


def masked_equal(draw: Draw) -> list[Case]:
    """`masked`, and masks that would fit in more than one way: n_q = n_k, and B = n_q = n_k."""
    (self_, s), (one, t), (each, u) = (
        qkv(draw, **equal(*axes)) for axes in (("n_q", "n_k"), ("B", "n_q", "n_k"), ALL)
    )
    return [
        *masked(draw),
        call(self_, mask(draw, s["n_q"], s["n_k"])),
        call(one, mask(draw, t["n_q"], t["n_k"])),
        call(each, mask(draw, u["B"], u["n_q"], u["n_k"])),
    ]


def padding(draw: Draw) -> list[Case]:
    (inputs, sizes), (others, same) = qkv(draw), qkv(draw, **equal("B", "n_q", "n_k"))
    return [call(inputs, padding_mask(draw, sizes, 1)), call(others, padding_mask(draw, same, 1))]


def heads(draw: Draw) -> list[Case]:
    cases = [call(qkv(draw, "Bh")[0])]
    for kind in ("one", "padding", "sentence", "shared", "full"):
        inputs, s = qkv(draw, "Bh")
        shape = {
            "one": (s["n_q"], s["n_k"]),
            "sentence": (s["B"], 1, s["n_q"], s["n_k"]),
            "shared": (1, 1, s["n_q"], s["n_k"]),
            "full": (s["B"], s["h"], s["n_q"], s["n_k"]),
        }.get(kind)
        cases.append(call(inputs, mask(draw, *shape) if shape else padding_mask(draw, s, 1, 1)))
    inputs, s = qkv(draw, "Bh", **equal(*ALL))
    return [*cases, call(inputs), call(inputs, padding_mask(draw, s, 1, 1))]


def no_batch(draw: Draw) -> list[Case]:
    inputs, sizes = qkv(draw, "")
    return [call(inputs), call(qkv(draw, "", **sizes)[0], mask(draw, sizes["n_q"], sizes["n_k"]))]


def _causal_parts(draw: Draw) -> tuple[list, Tensor, int]:
    n = draw.size(4, 6)
    inputs, _ = qkv(draw, n_q=n, n_k=n)
    return inputs, torch.ones(n, n, dtype=torch.bool).tril(), n


def causal(draw: Draw) -> list[Case]:
    """The same past with two futures: what the reference gives for the past is the same in both."""
    inputs, lower, n = _causal_parts(draw)
    other = [x.clone() for x in inputs]
    for x in other:
        x[:, n // 2 :] = 3 * draw.normal(*x[:, n // 2 :].shape)
    return [call(inputs, lower), call(other, lower)]


def huge(draw: Draw) -> list[Case]:
    """The last key is hidden from all queries but the last, and would win against every other by far."""
    (q, k, v), lower, _ = _causal_parts(draw)
    q[:, -1] = q[:, 0]
    k[:, -1] = 400 * math.sqrt(q.size(-1)) * q[:, 0] / (q[:, 0] ** 2).sum(-1, keepdim=True)  # its score: 400
    return [call([q, k, v], lower)]


def smallest(draw: Draw) -> list[Case]:
    single, s = qkv(draw, B=1)
    padded = call(single, mask(draw, s["n_q"], s["n_k"]))
    return [padded, call(qkv(draw, n_q=1)[0]), call(qkv(draw, n_k=1)[0]), call(qkv(draw, d_v=1)[0])]


def gradient(draw: Draw) -> list[Case]:
    cases = []
    for with_mask in (False, True):
        inputs, s = qkv(draw)
        allowed = mask(draw, s["B"], s["n_q"], s["n_k"]) if with_mask else None
        cotangent = draw.normal(s["B"], s["n_q"], s["d_v"])
        cases.append(call(inputs, allowed, wrt=["0", "1", "2"], cotangents=[cotangent, None]))
    return cases


def with_and_without(draw: Draw) -> list[Case]:
    (free, _), (inputs, s) = qkv(draw), qkv(draw)
    return [call(free), call(inputs, mask(draw, s["n_q"], s["n_k"]))]


def strided(draw: Draw) -> list[Case]:
    inputs, sizes = qkv(draw)
    return [call([{"$": "strided", "tensor": x} for x in inputs], padding_mask(draw, sizes, 1))]
