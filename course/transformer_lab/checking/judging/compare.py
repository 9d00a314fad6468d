"""Compare what was observed with what was expected, and say the first difference in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch

from transformer_lab.checking.probes.core import Observation
from transformer_lab.checking.probes.problems import Problem
from transformer_lab.language import _


@dataclass(frozen=True)
class Tolerance:
    """|observed - expected| <= atol + rtol * |expected|, element by element."""

    atol: float = 1e-5
    rtol: float = 1e-4


@dataclass(frozen=True)
class Difference:
    """The first thing wrong: its kind (missing, type, shape, dtype, nan, value, ...) and a sentence."""

    kind: str
    text: str
    todo: str = ""  # the number of the TODO that the code stopped at, where the kind is "todo"


def selected(values: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names of `values` that a row looks at, in the order of its patterns."""
    names = list(values)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        chosen.update(dict.fromkeys(name for name in names if fnmatchcase(name, pattern)))
    return list(chosen)


def difference(
    expected: dict[str, Any], seen: Observation, tolerance: Tolerance, spoken: dict[str, str]
) -> Difference | None:
    """Return the first difference between `expected` and the observation, or None when they agree.

    `spoken` gives names such as "out.1" the words that a learner reads ("the weights").
    """
    if seen.problem is not None and not set(expected) <= set(seen.values):
        return Difference(seen.problem.kind, seen.problem.text, seen.problem.todo)
    for name, value in expected.items():
        said = spoken.get(name) or _say(name)
        if name not in seen.values:
            return Difference("missing", _("{said}: {why}.").format(said=said, why=_missing(name, seen)))
        if name == "changed" and value == [] and seen.values[name]:
            return Difference(
                "changed", _("Your code changed its input. Make a new tensor and leave the old one.")
            )
        found = _value_difference(said, value, seen.values[name], tolerance)
        if found:
            return found
    return None


def agree(a: Observation, b: Observation, names: Iterable[str], tolerance: Tolerance) -> bool:
    """Say whether two observations are the same as far as a row looks (used to recognise a mistake)."""
    if a.problem is not None or b.problem is not None:
        return _same_problem(a.problem, b.problem)
    return all(
        (name in a.values) == (name in b.values)  # a value that is missing is not the value None
        and _same_item(a.values.get(name), b.values.get(name), tolerance)
        for name in names
    )


def error_ratio(expected: Any, seen: Any, tolerance: Tolerance) -> float:
    """Return the largest error in units of the tolerance (inf when type, shape or dtype differ).

    Lists and dicts are compared item by item, so that numbers in them may differ by rounding, too.
    """
    if type(expected) is not type(seen):
        return math.inf
    if isinstance(expected, torch.Tensor):
        return _tensor_ratio(expected, seen, tolerance)
    if isinstance(expected, list) and len(expected) == len(seen):
        return max((error_ratio(e, s, tolerance) for e, s in zip(expected, seen, strict=True)), default=0.0)
    if isinstance(expected, dict) and expected.keys() == seen.keys():
        return max((error_ratio(expected[key], seen[key], tolerance) for key in expected), default=0.0)
    if isinstance(expected, float):
        e, s = torch.tensor([expected, seen], dtype=torch.float64)
        return _tensor_ratio(e, s, tolerance)
    return math.inf if isinstance(expected, list | dict) or expected != seen else 0.0


def _tensor_ratio(expected: torch.Tensor, seen: torch.Tensor, tolerance: Tolerance) -> float:
    if expected.shape != seen.shape or expected.dtype != seen.dtype:
        return math.inf
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, seen) else math.inf
    excess = _excess(expected, seen, tolerance)
    return float(excess.max()) if excess.numel() else 0.0


def _excess(expected: torch.Tensor, seen: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return each element's error over its tolerance; equal infinities and NaNs count as no error."""
    e, s = expected.double(), seen.double()
    same = (e == s) | (e.isnan() & s.isnan())
    ratio = (s - e).abs() / (tolerance.atol + tolerance.rtol * e.abs())
    return torch.where(same, torch.zeros_like(ratio), ratio.nan_to_num(nan=math.inf, posinf=math.inf))


def _same_item(a: Any, b: Any, tolerance: Tolerance) -> bool:
    # A recognised mistake may differ from ours by rounding, so a little slack is right here.
    slack = Tolerance(tolerance.atol * 3, tolerance.rtol * 3)
    return error_ratio(a, b, slack) <= 1


def _same_problem(a: Problem | None, b: Problem | None) -> bool:
    if a is None or b is None:
        return False
    return a.kind == b.kind and _gist(a.error) == _gist(b.error)


def _gist(error: str) -> str:
    """Drop a class's own name and addresses from an error, which differ between two same mistakes."""
    return " ".join(word for word in error.split() if "0x" not in word and "." not in word.strip("."))


def _value_difference(said: str, expected: Any, seen: Any, tolerance: Tolerance) -> Difference | None:
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(said, expected, seen, tolerance)
    if error_ratio(expected, seen, tolerance) <= 1:
        return None
    if seen is None:
        return Difference("none", _("{said} is None. Is a return statement missing?").format(said=said))
    if isinstance(seen, torch.Tensor):
        return Difference(
            "type",
            _("{said} is a tensor; {expected} was expected.").format(said=said, expected=_show(expected)),
        )
    return Difference("value", _is_not(said, _show(seen), _show(expected)))


def _is_not(said: str, seen: str, wanted: str) -> str:
    return _("{said} is {seen}; expected {wanted}.").format(said=said, seen=seen, wanted=wanted)


def _tensor_difference(
    said: str, expected: torch.Tensor, seen: Any, tolerance: Tolerance
) -> Difference | None:
    if not isinstance(seen, torch.Tensor):
        return _not_a_tensor(said, seen)
    if seen.shape != expected.shape:
        found, wanted = list(seen.shape), list(expected.shape)
        hint = _shape_hint(found, wanted)
        return Difference(
            "shape",
            _("{said} has shape {found}; expected {wanted}.{hint}").format(
                said=said, found=found, wanted=wanted, hint=hint
            ),
        )
    if seen.dtype != expected.dtype:
        found, wanted = (str(t.dtype).removeprefix("torch.") for t in (seen, expected))
        return Difference(
            "dtype",
            _("{said} has dtype {found}; expected {wanted}.").format(said=said, found=found, wanted=wanted),
        )
    if error_ratio(expected, seen, tolerance) <= 1:
        return None
    if seen.is_floating_point() and (seen.isnan() & ~expected.isnan()).any():
        bad = int((seen.isnan() & ~expected.isnan()).sum())
        return Difference(
            "nan",
            _("{said} holds NaN in {bad} of {seen_numel} places.").format(
                said=said, bad=bad, seen_numel=seen.numel()
            ),
        )
    return Difference("value", _worst_place(said, expected, seen, tolerance))


def _not_a_tensor(said: str, seen: Any) -> Difference:
    if seen is None:
        return Difference("none", _("{said} is None. Is a return statement missing?").format(said=said))
    kind = seen.get("$type") if isinstance(seen, dict) else None
    if kind == "numpy.ndarray":
        return Difference("numpy", _("{said} is a numpy array; return a torch.Tensor.").format(said=said))
    if kind and kind.startswith("a tensor on "):
        text = _(
            "{said} is {kind}; one on the CPU, like the inputs, was expected. Create new tensors with "
            "device=x.device."
        )
        return Difference("device", text.format(said=said, kind=kind))
    what = _show(seen) if kind else _a(type(seen).__name__)
    return Difference(
        "type", _("{said} is {what}; an ordinary torch.Tensor was expected.").format(said=said, what=what)
    )


def _shape_hint(found: list[int], wanted: list[int]) -> str:
    if sorted(found) == sorted(wanted):
        return _(" The right axes in the wrong order: is there a transpose too many or too few?")
    if [size for size in found if size != 1] == [size for size in wanted if size != 1]:
        return _(" They differ only by axes of length 1.")
    if len(found) != len(wanted):
        return _(" It has {axes}; {needed}.").format(axes=_axes(len(found)), needed=_needed(len(wanted)))
    return ""


def _axes(count: int) -> str:
    return _("1 axis") if count == 1 else _("{count} axes").format(count=count)


def _needed(count: int) -> str:
    return _("1 is needed") if count == 1 else _("{count} are needed").format(count=count)


def _worst_place(said: str, expected: torch.Tensor, seen: torch.Tensor, tolerance: Tolerance) -> str:
    """Name the element that is furthest off, and a simple relation between the two when there is one."""
    if not expected.dim():
        return _is_not(said, _number(seen.item()), _number(expected.item()))
    excess = (
        _excess(expected, seen, tolerance) if expected.is_floating_point() else (expected != seen).double()
    )
    # Not torch.unravel_index: its first use imports sympy, and a learner would wait a second for it.
    index = [int(i) for i in np.unravel_index(int(excess.argmax()), tuple(excess.shape))]
    wrong, total = int((excess > (1 if expected.is_floating_point() else 0)).sum()), excess.numel()
    at = ", ".join(map(str, index))
    a, b = seen[tuple(index)].item(), expected[tuple(index)].item()
    text = _("{said}[{at}] is {a}; expected {b}. {wrong} of {total} numbers differ.").format(
        said=said, at=at, a=_number(a), b=_number(b), wrong=wrong, total=total
    )
    return text + _relation(expected, seen)


def _relation(expected: torch.Tensor, seen: torch.Tensor) -> str:
    if not expected.is_floating_point() or not seen.isfinite().all() or not expected.isfinite().all():
        return ""
    e, s = expected.double().flatten(), seen.double().flatten()
    large = e.abs() > 1e-6
    if large.sum() < 2:
        return ""
    ratio = s[large] / e[large]
    middle = float(ratio.median())
    if abs(middle) > 1e-3 and (ratio - middle).abs().max() < 1e-3 * abs(middle):
        return _(" Every number is {middle:.4g} times the expected one.").format(middle=middle)
    shift = s - e
    if (shift - shift.median()).abs().max() < 1e-4:
        return _(" Every number is off by {shift:.4g}.").format(shift=float(shift.median()))
    return ""


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if 1e-3 < abs(value) < 1e5 else f"{value:.4g}"


def _show(value: Any, limit: int = 160) -> str:
    if isinstance(value, dict) and "$type" in value:
        kind = str(value["$type"])
        return _(kind) if " " in kind else _a(kind)
    if isinstance(value, dict) and "$dict" in value:
        value = {_show(key): item for key, item in value["$dict"]}
    text = value if isinstance(value, str) else _number(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def _say(name: str) -> str:
    """Put an internal name into words: out, out.1, grad.x, attr.pe, parameters, buffers, changed."""
    head, _dot, rest = name.partition(".")
    words = {
        "out": _("output {number}").format(number=rest) if rest else _("the output"),
        "grad": _("the gradient of {rest}").format(rest=rest),
        "attr": rest.removesuffix(".requires_grad")
        + (".requires_grad" if rest.endswith(".requires_grad") else ""),
        "parameters": _("the list of parameters"),
        "buffers": _("the list of buffers"),
        "changed": _("the list of changed inputs"),
        "raised": _("the exception raised"),
    }
    return words.get(head, name)


def _missing(name: str, seen: Observation) -> str:
    if name.startswith("out.") and "out" in seen.values:
        return _("a tuple of results was expected, and one value came back")
    if name == "out" and "out.0" in seen.values:
        return _("one value was expected, and a tuple came back")
    return _("nothing like it came out of your code")
