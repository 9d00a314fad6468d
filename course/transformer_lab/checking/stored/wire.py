"""Plain data across a file or a process boundary, without pickle.

A tree is built of None, bool, int, float, str, lists, dicts with string keys, and tensors as leaves.
It is packed into the safetensors format: the tensors as they are, the rest as JSON in the header.
Reading one can therefore run no code, whoever wrote it.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import torch
from safetensors.torch import load, save

_TENSOR = "tensor#"  # the one key that a packed tensor's placeholder has


class WireError(ValueError):
    """The bytes are not a packed tree."""


def _lift(tree: Any, tensors: dict[str, torch.Tensor], known: dict[tuple, str]) -> Any:
    """Move the tensors out of a tree, leaving numbered placeholders; equal tensors are kept once."""
    if isinstance(tree, torch.Tensor):
        tensor = tree.detach().cpu().contiguous().clone()
        content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        name = known.setdefault((tensor.dtype, tensor.shape, content), str(len(tensors)))
        tensors[name] = tensor
        return {_TENSOR: name}
    if isinstance(tree, dict):
        if any(not isinstance(key, str) or key == _TENSOR for key in tree):
            raise WireError("a packed dict has strings other than 'tensor#' for keys")
        return {key: _lift(value, tensors, known) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_lift(value, tensors, known) for value in tree]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise WireError(f"cannot pack a {type(tree).__name__}")


def _sink(tree: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Put the tensors back where their placeholders stand."""
    if isinstance(tree, dict):
        if set(tree) == {_TENSOR}:
            return tensors[tree[_TENSOR]]
        return {key: _sink(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_sink(value, tensors) for value in tree]
    return tree


def pack(tree: Any) -> bytes:
    """Return `tree` as bytes; equal trees give equal bytes.

    Raises WireError for a value that is neither JSON-like nor a tensor.
    """
    tensors: dict[str, torch.Tensor] = {}
    try:
        text = json.dumps(_lift(tree, tensors, {}), ensure_ascii=False, sort_keys=True)
        text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair, which UTF-8 has not
        return save(tensors, metadata={"tree": text})
    except (KeyError, RuntimeError, ValueError) as error:  # a sparse tensor, a too long number, too deep, ...
        raise WireError(f"cannot pack it: {type(error).__name__}: {error}") from error


def unpack(data: bytes) -> Any:
    """Return the tree that `pack` was given (tuples come back as lists, tensors on the CPU).

    Raises WireError when the bytes are anything else.
    """
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        return _sink(json.loads(header["__metadata__"]["tree"]), load(data))
    except Exception as error:  # whatever a hostile writer managed to send, it is one kind of fault here
        raise WireError(f"not a packed tree: {type(error).__name__}: {error}") from error
