"""The names that a function knows."""

from __future__ import annotations

import ast
import sys


def variables(function: ast.AST, line: int = sys.maxsize) -> list[str]:
    """Return the parameters of a function and what it assigns before a line."""
    return list(dict.fromkeys([*parameters(function), *stored(function, line)]))


def stored(function: ast.AST, line: int = sys.maxsize) -> list[str]:
    """Return the names that a function assigns before a line, comprehensions aside."""
    inner = {
        id(n) for c in ast.walk(function) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)
    }
    return [
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if node.lineno < line and id(node) not in inner and not node.id.startswith("_")
    ]


def parameters(function: ast.AST) -> list[str]:
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
        return []
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg != "self"]
