"""Operators: arithmetic, comparisons and logic."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.mutants.names import HAVE_IN_PLACE
from grader.authoring.mutants.places import New, Place
from grader.authoring.mutants.registry import like, on, without
from grader.authoring.mutants.scope import parameters, stored

ARITHMETIC: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add, ast.MatMult),
    ast.MatMult: (ast.Mult,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
}
EITHER_WAY = (ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)  # a * b is b * a


@on(ast.BinOp, ast.AugAssign)
def other_arithmetic(place: Place) -> Iterator[New]:
    for other in ARITHMETIC.get(type(place.node.op), ()):
        yield like(place.node, op=other())


@on(ast.BinOp)
def one_operand(place: Place) -> Iterator[New]:
    yield place.node.left
    yield place.node.right


@on(ast.BinOp)
def operands_swapped(place: Place) -> Iterator[New]:
    left, right = place.node.left, place.node.right
    either_way = isinstance(place.node.op, EITHER_WAY)
    if isinstance(place.node.op, ast.Add):  # numbers may change places, lists may not
        either_way = not (_is_list(left) or _is_list(right))
    if not either_way:
        yield like(place.node, left=right, right=left)


def _is_list(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_list(node.left) or _is_list(node.right)
    return isinstance(node, (ast.List, ast.ListComp))


IN_PLACE = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}


@on(ast.BinOp)
def in_place(place: Place) -> Iterator[New]:
    """Arithmetic that overwrites a parameter: what the caller passed changes."""
    if type(place.node.op) in IN_PLACE and _is_the_callers(place.node.left, place):
        method = ast.Attribute(place.node.left, IN_PLACE[type(place.node.op)], ast.Load())
        yield ast.Call(method, [place.node.right], [])


@on(ast.Call)
def method_in_place(place: Place) -> Iterator[New]:
    function = place.node.func
    known = isinstance(function, ast.Attribute) and function.attr in HAVE_IN_PLACE
    if known and _is_the_callers(function.value, place):
        yield like(place.node, func=like(function, attr=function.attr + "_"))


def _is_the_callers(node: ast.AST, place: Place) -> bool:
    """Say whether this is a parameter that the function never gives another value."""
    function = place.nearest((ast.FunctionDef, ast.Lambda))
    own = set(parameters(function)) - set(stored(function))
    return isinstance(node, ast.Name) and node.id in own


@on(ast.UnaryOp)
def sign_dropped(place: Place) -> Iterator[New]:
    yield place.node.operand


COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq, ast.Lt, ast.Gt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@on(ast.Compare)
def other_comparison(place: Place) -> Iterator[New]:
    for index, op in enumerate(place.node.ops):
        for other in COMPARISONS[type(op)][: 1 if _is_word(place.node.comparators[index]) else None]:
            ops = list(place.node.ops)
            ops[index] = other()
            yield like(place.node, ops=ops)


def _is_word(node: ast.AST) -> bool:
    """Words are equal or not; nobody asks which comes first in the alphabet."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@on(ast.BoolOp)
def other_logic(place: Place) -> Iterator[New]:
    node = place.node
    yield like(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for index in range(len(node.values)):
        kept = without(node.values, index)
        yield kept[0] if len(kept) == 1 else like(node, values=kept)


@on(ast.IfExp)
def one_branch(place: Place) -> Iterator[New]:
    yield place.node.body
    yield place.node.orelse
    yield like(place.node, body=place.node.orelse, orelse=place.node.body)
