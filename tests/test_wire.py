"""Plain data across a boundary: what goes in comes out, and nothing that comes in can do harm."""

import json
import math
import os
import pickle
import struct

import numpy as np
import pytest
import torch

from transformer_lab.checking.stored.wire import WireError, pack, unpack

TREE = {
    "none": None,
    "flags": [True, False],
    "numbers": [0, -7, 2**60, 0.1, 1e-300],
    "words": 'θ, –, 中文, a\nnew line and "quotes"',
    "nested": {
        "x": torch.arange(6.0).reshape(2, 3),
        "list": [torch.tensor(3), {"deep": torch.tensor([True])}],
    },
    "empty": {"dict": {}, "list": [], "tensor": torch.zeros(0, 4)},
}


def equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def test_a_tree_comes_back_as_it_was():
    assert equal(TREE, unpack(pack(TREE)))


def test_equal_trees_give_equal_bytes_whatever_the_order_of_their_keys():
    assert pack({"a": 1, "b": torch.ones(2)}) == pack({"b": torch.ones(2), "a": 1})
    assert pack({"a": torch.ones(2)}) != pack({"a": torch.zeros(2)})


@pytest.mark.parametrize(
    "name", ["float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]
)
def test_dtypes_are_kept(name):
    value = torch.ones(2, 3, dtype=getattr(torch, name))
    assert equal(value, unpack(pack([value]))[0])


def test_views_shared_memory_and_gradients_do_not_matter():
    x = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    back = unpack(pack({"a": x, "b": x.T, "c": x[0].expand(4, 3), "d": x}))
    assert (
        torch.equal(back["b"], x.T)
        and torch.equal(back["c"], x[0].expand(4, 3))
        and equal(back["a"], back["d"])
    )
    assert not back["a"].requires_grad


def test_packing_copies_so_a_later_change_does_not_show():
    x = torch.zeros(2)
    data = pack([x])
    x += 1
    assert unpack(data)[0].tolist() == [0, 0]


def test_tuples_come_back_as_lists():
    assert unpack(pack((1, (2,)))) == [1, [2]]


def test_infinities_and_nan_survive_as_numbers_and_in_tensors():
    back = unpack(pack([math.inf, math.nan, torch.tensor([math.nan, -math.inf])]))
    assert back[0] == math.inf and math.isnan(back[1]) and back[2].isnan().tolist() == [True, False]


def test_text_that_utf8_cannot_hold_survives():
    assert unpack(pack({"text": "half \ud800 a pair"})) == {"text": "half \ud800 a pair"}


UNPACKABLE = {
    "an object": object(),
    "a set": {1},
    "bytes": b"x",
    "a function": len,
    "a numpy array": np.zeros(2),
    "a complex number": 1j,
    "a number as key": {1: 2},
    "the reserved key": {"tensor#": "0"},
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a tensor without memory": torch.zeros(2, device="meta"),
    "a dtype that safetensors lacks": torch.zeros(2, dtype=torch.complex128),
    "a number too long for JSON": 10**5000,
}


@pytest.mark.parametrize("name", UNPACKABLE)
def test_what_is_not_plain_is_refused_with_its_own_error(name):
    with pytest.raises(WireError):
        pack({"value": UNPACKABLE[name]})


def test_a_tree_without_end_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(WireError):
        pack(loop)


def header(text: str, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode() + body


class Bomb:
    def __reduce__(self):
        return os.putenv, ("WIRE_BOMB", "1")  # what a hostile pickle would run


GARBAGE = {
    "nothing": b"",
    "short": b"abc",
    "text": b"hello, this is not a tree at all",
    "a pickle": pickle.dumps(Bomb()),
    "a length beyond the end": struct.pack("<Q", 2**63) + b"{}",
    "no metadata": header("{}"),
    "metadata without a tree": header(json.dumps({"__metadata__": {}})),
    "a tree that is not JSON": header(json.dumps({"__metadata__": {"tree": "["}})),
    "a placeholder without its tensor": header(json.dumps({"__metadata__": {"tree": '{"tensor#": "7"}'}})),
    "a placeholder that is a list": header(json.dumps({"__metadata__": {"tree": '{"tensor#": []}'}})),
    "a tensor beyond the end": header(
        json.dumps(
            {
                "0": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]},
                "__metadata__": {"tree": '{"tensor#": "0"}'},
            }
        )
    ),
    "brackets without end": header(json.dumps({"__metadata__": {"tree": "[" * 100_000}})),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_one_kind_of_error(name):
    with pytest.raises(WireError):
        unpack(GARBAGE[name])


def test_every_cut_of_a_good_tree_is_refused():
    data = pack({"x": torch.ones(3), "text": "abc"})
    for length in range(len(data)):
        with pytest.raises(WireError):
            unpack(data[:length])
