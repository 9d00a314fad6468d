"""Run a learner's symbol on one case and report, in plain data, what it did.

A probe compares nothing and knows no answer. It runs beside the learner's code: in their kernel for
`check`, in a process of its own for grading. The two general probes serve nearly every exercise:

- `function`: call it; report its result, the gradients through chosen arguments, the inputs it changed.
- `module`: build it, load given weights strictly, call it; report the same and what the module holds.

A special probe is a function decorated with `@probe("name")`.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from transformer_lab.checking.probes.arguments import build, plain
from transformer_lab.checking.probes.problems import Problem, Trouble, problem_of
from transformer_lab.language import N_

PRINTED_LIMIT = 2000  # characters of a learner's own output that are kept for one case


@dataclass(frozen=True)
class Case:
    """One experiment: the probe that makes it and its inputs, a tree that `wire.pack` accepts."""

    probe: str
    inputs: dict[str, Any]

    def tree(self) -> dict[str, Any]:
        return {"probe": self.probe, "inputs": self.inputs}


@dataclass
class Observation:
    """What was seen: named values, the problem that stopped it (if any), what the code printed."""

    values: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    printed: str = ""

    def tree(self) -> dict[str, Any]:
        problem = self.problem.tree() if self.problem else None
        return {"values": self.values, "problem": problem, "printed": self.printed}

    @staticmethod
    def from_tree(tree: dict[str, Any]) -> Observation:
        """Rebuild an observation that crossed a boundary.

        Raises KeyError, TypeError or ValueError when the tree is not one.
        """
        problem = Problem(**tree["problem"]) if tree["problem"] else None
        values = tree["values"]
        if not isinstance(values, dict):
            raise TypeError("the values of an observation are a dict")
        return Observation(values, problem, str(tree["printed"])[:PRINTED_LIMIT])


Probe = Callable[[Any, dict[str, Any], dict[str, Any]], None]
PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    """Register `function(symbol, inputs, values)`, which fills `values` and raises on trouble."""

    def register(function: Probe) -> Probe:
        PROBES[name] = function
        return function

    return register


@contextlib.contextmanager
def neutral_state() -> Iterator[io.StringIO]:
    """Run with gradients on, float32 as default, a fixed seed, and output captured; restore everything."""
    grad, dtype, rng = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_rng_state()
    output = io.StringIO()
    try:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.default_generator.manual_seed(0)  # torch.manual_seed formats the call stack: 0.8 ms a case
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield output
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(rng)


def observe(symbol: Any, case: Case) -> Observation:
    """Run `case` on `symbol`; whatever the learner's code does, an observation comes back.

    Only KeyboardInterrupt passes through, so that a learner can stop an endless loop.
    """
    seen = Observation()
    with neutral_state() as output:
        try:
            PROBES[case.probe](symbol, case.inputs, seen.values)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: it is the learner's mistake, not ours
            seen.problem = problem_of(error)
        seen.printed = "" if output.closed else output.getvalue()[:PRINTED_LIMIT]
    return seen


def _call(
    function: Callable,
    inputs: dict[str, Any],
    values: dict[str, Any],
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Call `function` as `inputs` say and note result, changed inputs and gradients in `values`."""
    args = build(inputs.get("args", []))
    kwargs = build(inputs.get("kwargs", {}))
    paths = inputs.get("wrt", [])
    wrt = {str(path): _argument(args, kwargs, path).requires_grad_() for path in paths if path != "weights"}
    wrt |= (weights or {}) if "weights" in paths else {}
    before = {path: _copy(value) for path, value in _changeable(args, kwargs)}
    result = function(*args, **kwargs)
    values["changed"] = [path for path, value in _changeable(args, kwargs) if not _same(before[path], value)]
    _note("out", result, values)
    if inputs.get("cotangents"):
        _backward(result, inputs["cotangents"], wrt, values)


def _argument(args: list, kwargs: dict, path: str) -> torch.Tensor:
    return args[int(path)] if str(path).isdigit() else kwargs[path]


def _changeable(args: list, kwargs: dict) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that are watched for changes, by path: tensors, lists and dicts."""
    for path, value in [*enumerate(args), *kwargs.items()]:
        if isinstance(value, torch.Tensor | list | dict):
            yield str(path), value


def _copy(value: Any) -> Any:
    """Copy a tensor, and lists and dicts as deep as they go; other things in them stay themselves."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _same(a: Any, b: Any) -> bool:
    """Say whether `b` is what its copy `a` was. Dicts must keep their order, too."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        b = b.detach()
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and _same(list(a.values()), list(b.values()))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (type(a) is type(b) and a == b)


def _note(name: str, value: Any, values: dict[str, Any]) -> None:
    """Store a result; a tuple's items get names of their own (`out.0`, `out.1`)."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            values[f"{name}.{index}"] = plain(item)
    else:
        values[name] = plain(value)


def _backward(result: Any, cotangents: list[torch.Tensor], wrt: dict, values: dict[str, Any]) -> None:
    """Add the gradients of sum(result * cotangent) by every tensor of `wrt`."""
    outputs = result if isinstance(result, tuple) else (result,)
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=False) if c is not None]
    for output, cotangent in pairs:
        if not isinstance(output, torch.Tensor) or output.shape != cotangent.shape:
            raise Trouble("shape", "The output has another shape than expected, so no gradient was taken.")
    total = sum(((o * c.to(o.dtype)).sum() for o, c in pairs), start=torch.zeros(()))
    if not total.requires_grad:
        raise Trouble("no_gradient", "No gradient flows from the output back to the inputs.")
    gradients = torch.autograd.grad(total, list(wrt.values()), allow_unused=True)
    for path, gradient in zip(wrt, gradients, strict=True):
        values[f"grad.{path}"] = plain(gradient)


@probe("function")
def _function(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: args, kwargs, wrt (argument positions or names), cotangents (one an output)."""
    _call(symbol, inputs, values)


@probe("module")
def _module(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """inputs: make {args, kwargs}, weights, dtype, mode, keep, and call {args, kwargs, wrt, cotangents}.

    `wrt` may hold "weights": then the gradients of all parameters are reported too.
    """
    module = make_module(symbol, inputs, values)
    if inputs.get("call"):
        _call(module, inputs["call"], values, dict(module.named_parameters()))
    for name in inputs.get("keep", []):
        _keep(module, name, values)


def make_module(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> nn.Module:
    """Build the learner's module, report its parameters and buffers, load weights, set dtype and mode."""
    make = inputs.get("make", {})
    module = symbol(*build(make.get("args", [])), **build(make.get("kwargs", {})))
    if not isinstance(module, nn.Module):
        raise Trouble("not_module", "{name}(...) is not an nn.Module.", name=symbol.__name__)
    values["parameters"] = [[name, list(p.shape)] for name, p in sorted(module.named_parameters())]
    values["buffers"] = [[name, list(b.shape)] for name, b in sorted(module.named_buffers())]
    if "weights" in inputs:
        load_weights(module, inputs["weights"])
    if "dtype" in inputs:
        module.to(getattr(torch, inputs["dtype"]))
    return module.train(inputs.get("mode", "eval") == "train")


def load_weights(module: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy `weights` into the module's parameters, by name.

    Raises Trouble("attributes") that names what is missing, what is extra and what has another shape.
    """
    own = dict(module.named_parameters())
    missing, extra = sorted(set(weights) - set(own)), sorted(set(own) - set(weights))
    if missing or extra:
        raise attribute_trouble(missing, extra)
    for name, value in sorted(weights.items()):  # sorted: a recorded case may hold them in another order
        if own[name].shape != value.shape:
            found, wanted = list(own[name].shape), list(value.shape)
            raise Trouble(
                "attributes",
                "{name} has shape {found}; {wanted} is needed.",
                name=name,
                found=found,
                wanted=wanted,
            )
        own[name].data.copy_(value)


def attribute_trouble(missing: list[str], extra: list[str]) -> Trouble:
    """Return the Trouble that names the attributes which are missing and those that are too many."""
    if not extra:
        sentence = N_("The module needs {missing}, which yours does not have.")
    elif not missing:
        sentence = N_("Yours has {extra}, which the task does not name.")
    else:
        sentence = N_(
            "The module needs {missing}, which yours does not have. Yours has {extra}, which the task does "
            "not name. Rename the attribute, so that later chapters find it."
        )
    return Trouble("attributes", sentence, missing=", ".join(missing), extra=", ".join(extra))


def _keep(module: nn.Module, name: str, values: dict[str, Any]) -> None:
    """Report an attribute (dots reach inside): a tensor's value and whether it carries a gradient."""
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise Trouble(
                "attributes", "The module needs the attribute {name}, which yours does not have.", name=name
            )
        target = getattr(target, part)
    values[f"attr.{name}"] = plain(target)
    if isinstance(target, torch.Tensor):
        values[f"attr.{name}.requires_grad"] = target.requires_grad
