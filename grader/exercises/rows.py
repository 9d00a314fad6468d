"""The rows that nearly every exercise has, and the changes of a case that they are made of.

Each takes `cases`, the drawing function of the exercise's own rows, and asks something else of the same cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grader.exercises.draw import Draw
from grader.exercises.model import Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

Cases = Callable[[Draw], list[Case]]
VALUE = ("value",)


def input_kept(cases: Cases, says: str = "", needs: tuple[str, ...] = VALUE, **more: Any) -> Row:
    """No input is changed."""
    return Row("input kept", says or _("x itself is left unchanged"), cases, ("changed",), needs, **more)


def float64(cases: Cases, says: str = "", needs: tuple[str, ...] = VALUE, looks=("out",), **more: Any) -> Row:
    """The same in double precision. It shares one row's weight with `device`, where an exercise has both."""
    text = says or _("a float64 input gives a float64 output")
    return Row("float64", text, lambda draw: [in_float64(c) for c in cases(draw)], looks, needs, **more)


def layout(cases: Cases, says: str = "", needs: tuple[str, ...] = VALUE, looks=("out",), **more: Any) -> Row:
    """The same numbers in another memory layout."""
    text = says or _("an x whose memory is not in order (after a transpose) gives the same output")
    return Row("layout", text, lambda draw: [strided(c) for c in cases(draw)], looks, needs, **more)


def device(cases: Cases, says: str = "", needs: tuple[str, ...] = VALUE, **more: Any) -> Row:
    """The answer's own tensors stand where its inputs are. Tried without such a device; see the probe."""
    text = says or _("new tensors are made where x is, so that it also runs on a GPU")
    return Row("device", text, lambda draw: [elsewhere(c) for c in cases(draw)], ("device",), needs, **more)


# ---- changes of a case ------------------------------------------------------------------------------


def in_float64(case: Case) -> Case:
    """Return the case with its numbers, and its module, in double precision."""
    inputs = _each_tensor(case.inputs, lambda t: t.double() if t.is_floating_point() else t)
    return Case(case.probe, inputs | ({"dtype": "float64"} if "make" in inputs else {}))


def strided(case: Case) -> Case:
    """Return the case with the tensors among its arguments in another memory layout."""
    inputs = dict(case.inputs)
    for path in (("args",), ("kwargs",), ("call", "args"), ("call", "kwargs")):
        inputs = _changed(inputs, path, lambda t: {"$": "strided", "tensor": t} if t.dim() > 1 else t)
    return Case(case.probe, inputs)


def elsewhere(case: Case) -> Case:
    """Return the case on a device that is not the CPU."""
    return Case("device", {"run": case.tree()})


def _changed(tree: Any, path: tuple[str, ...], change: Callable) -> Any:
    if not path:
        return _each_tensor(tree, change)
    if not isinstance(tree, dict) or path[0] not in tree:
        return tree
    return tree | {path[0]: _changed(tree[path[0]], path[1:], change)}


def _each_tensor(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _each_tensor(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_each_tensor(item, change) for item in tree]
    return tree
