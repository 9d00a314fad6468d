"""What a row that failed was given, what was expected and what came back, in words: for an appeal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from transformer_lab.checking.judging.compare import difference, error_ratio
from transformer_lab.checking.judging.key import AnswerKey, KeyRow
from transformer_lab.checking.judging.report import Report
from transformer_lab.checking.probes.core import Observation

_SHOWN = 24  # numbers of a tensor that are printed
_LONGEST = 400  # characters of one value


def evidence(key: AnswerKey, report: Report, seen: Mapping[int, Observation]) -> list[dict[str, Any]]:
    """Return, for each row that failed on a case, that case in words.

    seen: {id of a case: what was observed of it}. Each item holds row, case (counted from 1), of (how many
    cases the row has), probe, given, expected and seen, the last three as {name: text}.
    """
    failed = {row.name for row in report.rows if row.status == "failed"}
    found = (_first_failure(key, row, seen) for row in key.rows if row.name in failed)
    return [one for one in found if one is not None]


def _first_failure(key: AnswerKey, row: KeyRow, seen: Mapping[int, Observation]) -> dict[str, Any] | None:
    for number, item in enumerate(row.cases, 1):
        observed = seen.get(id(item.case))
        if observed is None or difference(item.expected, observed, row.tolerance, key.spoken) is None:
            continue
        names = [
            name
            for name, value in item.expected.items()
            if name not in observed.values or error_ratio(value, observed.values[name], row.tolerance) > 1
        ]
        problem = {"": observed.problem.text} if observed.problem else {}
        return {
            "row": row.name,
            "case": number,
            "of": len(row.cases),
            "probe": item.case.probe,
            "given": _flat(item.case.inputs),
            "expected": {name: in_words(item.expected[name]) for name in names},
            "seen": {n: in_words(observed.values[n]) for n in names if n in observed.values} | problem,
        }
    return None


def _flat(tree: Any, name: str = "") -> dict[str, str]:
    """Return {path: value in words} for the leaves of a tree of inputs."""
    if isinstance(tree, dict) and tree:
        parts = (_flat(value, f"{name}.{key}" if name else str(key)) for key, value in tree.items())
    elif isinstance(tree, (list, tuple)) and any(isinstance(x, (dict, list, torch.Tensor)) for x in tree):
        parts = (_flat(value, f"{name}[{number}]") for number, value in enumerate(tree))
    else:
        return {name: in_words(tree)}
    return {path: text for part in parts for path, text in part.items()}


def in_words(value: Any) -> str:
    """Return a value in one line: a small tensor whole, a large one by its shape and its first numbers."""
    if not isinstance(value, torch.Tensor):
        text = repr(value)
        return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
    numbers = value.detach().reshape(-1)
    shown = [_number(x) for x in numbers[:_SHOWN].tolist()]
    more = ", …" if len(numbers) > _SHOWN else ""
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind} {list(value.shape)}: {', '.join(shown)}{more}"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
