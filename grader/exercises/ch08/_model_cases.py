"""Cases for the whole model (8.4): sizes, ids and weights of a small Transformer."""

from __future__ import annotations

from grader.exercises.ch08._common import padded_ids
from grader.exercises.ch08._torch_model import ReferenceTransformer
from grader.exercises.draw import Draw
from transformer_lab.checking.probes.core import Case

TIED = {"output.proj.weight": "tgt_emb.emb.weight"}


def _case(
    draw: Draw,
    norm: str = "post",
    padded: bool = True,
    method: str | None = None,
    wrt: bool = False,
    **equal: int,
) -> Case:
    s = draw.sizes(h=[2, 4], B=(2, 3), m=(5, 6), n=(7, 9), d=[8, 12], d_ff=(10, 15), S=(17, 20), T=(21, 24))
    s |= equal
    sizes = {"d_model": s["d"], "h": s["h"], "d_ff": s["d_ff"], "N": 2 if norm == "post" else 1}
    options = {"max_len": 16, "dropout": 0.0} | ({} if norm == "post" else {"norm": norm})
    make = {"args": [s["S"], s["T"]], "kwargs": sizes | options}
    src, tgt_in = draw.integers(3, s["S"] - 1, s["B"], s["n"]), draw.integers(3, s["T"] - 1, s["B"], s["m"])
    if padded:
        src = padded_ids(draw, s["B"], s["n"], high=s["S"] - 1).flip(0)  # the first source has no padding
        tgt_in = padded_ids(draw, s["B"], s["m"], high=s["T"] - 1)  # the last target has none
    args = {
        None: [src, tgt_in],
        "encode": [src],
        "decode": [tgt_in, draw.normal(s["B"], s["n"], s["d"]), src],
    }[method]
    call: dict = {"args": args}
    if wrt:
        call |= {"wrt": ["weights"], "cotangents": [draw.normal(s["B"], s["m"], s["T"])]}
    inputs = {"make": make, "tied": TIED, "call": call} | ({"method": method} if method else {})
    skeleton = ReferenceTransformer(*make["args"], **make["kwargs"])
    return Case("composite", inputs | {"weights": draw.weights(skeleton)})


def logits(draw: Draw) -> list[Case]:
    return [_case(draw, padded=False)]


def padding(draw: Draw) -> list[Case]:
    """All sizes different, then equal: a mask whose axes are in the wrong order, or of the wrong ids, fits there."""
    as_long = {"m": 6, "n": 6, "S": 20, "T": 20}
    return [_case(draw), _case(draw, **as_long), _case(draw, B=4, h=4, m=4, n=4, d=8, d_ff=8)]


def one(draw: Draw) -> list[Case]:
    return [_case(draw)]


def encode(draw: Draw) -> list[Case]:
    """As many tokens as max_len has room for are fine, and one more is an error."""
    longest, too_long = _case(draw, method="encode", n=16), _case(draw, method="encode", n=17)
    error = Case("raises", {"run": too_long.tree(), "error": "Exception"})
    return [_case(draw, method="encode"), longest, error]


def decode(draw: Draw) -> list[Case]:
    return [_case(draw, method="decode"), _case(draw, method="decode", m=6, n=6)]


def pre_norm(draw: Draw) -> list[Case]:
    return [_case(draw, norm="pre")]


def gradient(draw: Draw) -> list[Case]:
    return [_case(draw, wrt=True)]


def dropout(draw: Draw) -> list[Case]:
    s = draw.sizes(B=(2, 3), m=(5, 6), n=(7, 9))
    make = {"args": [19, 23], "kwargs": {"d_model": 8, "h": 2, "d_ff": 12, "N": 1, "dropout": 0.5}}
    args = [draw.integers(3, 18, s["B"], s["n"]), draw.integers(3, 22, s["B"], s["m"])]
    rate = make["kwargs"] | {"dropout": 0.25}
    where = Case("where dropout acts in a model", {"make": make | {"kwargs": rate}, "args": args})
    return [Case("dropout", {"make": make, "args": args}), where]
