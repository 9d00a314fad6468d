"""The small changes of expressions: an operator gets a place and yields what may stand there instead."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator

from grader.authoring.mutants.names import (
    AXES,
    AXIS_KEYWORDS,
    EITHER_ORDER,
    MODULES,
    SIBLINGS,
    STRINGS,
)
from grader.authoring.mutants.places import New, Place

Operator = Callable[[Place], Iterator[New]]
OPERATORS: list[tuple[type | tuple[type, ...], Operator]] = []


def on(*kinds: type) -> Callable[[Operator], Operator]:
    """Register an operator for nodes of these kinds."""

    def register(operator: Operator) -> Operator:
        OPERATORS.append((kinds, operator))
        return operator

    return register


def like(node: ast.AST, **changes) -> ast.AST:
    """Return the node with some fields changed; it shares the others."""
    return type(node)(**({name: value for name, value in ast.iter_fields(node)} | changes))


def without(items: list, index: int) -> list:
    return [*items[:index], *items[index + 1 :]]


def swapped(items: list, index: int) -> list:
    """Return the items with the one at `index` and the next one in the other order."""
    return [*items[:index], items[index + 1], items[index], *items[index + 2 :]]


def name_of(function: ast.AST) -> str:
    """Return the last part of a called name: "amax" of x.amax and of torch.amax."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in MODULES


# ---- arithmetic, comparisons, logic -----------------------------------------------------------------

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
    function, left = place.nearest((ast.FunctionDef, ast.Lambda)), place.node.left
    if type(place.node.op) in IN_PLACE and isinstance(left, ast.Name) and left.id in _parameters(function):
        method = ast.Attribute(left, IN_PLACE[type(place.node.op)], ast.Load())
        yield ast.Call(method, [place.node.right], [])


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
        for other in COMPARISONS[type(op)]:
            ops = list(place.node.ops)
            ops[index] = other()
            yield like(place.node, ops=ops)


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


# ---- constants --------------------------------------------------------------------------------------

NEAR = 1.0001  # 10000 becomes 10001: wrong, and not by much
LARGE = 0.01  # below it a number keeps something from 0; a near miss of it is as good


def number(node: ast.AST) -> int | float | None:
    """Return the number that is written here, with its sign; None when it is something else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None else -value
    plain = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if plain else None


def written(value: int | float) -> ast.expr:
    """Return the code of a number."""
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


@on(ast.Constant, ast.UnaryOp)
def other_number(place: Place) -> Iterator[New]:
    value = number(place.node)
    if value is None or number(place.parent) is not None:  # the sign belongs to the number
        return
    near = _other_axes(value) if _is_axis(place) else _other_sizes(value)
    yield from (written(other) for other in near if (other, type(other)) != (value, type(value)))


def _other_axes(value: int | float) -> tuple[int | float, ...]:
    return (-2, -1, 0, 1, 2) if abs(value) <= 2 else (value - 1, value + 1)


def _other_sizes(value: int | float) -> tuple[int | float, ...]:
    if isinstance(value, int):
        return value + 1, value - 1, 10 * value, 0, 1
    moved = (value * NEAR, value + 1, 0.0, 1.0) if abs(value) >= LARGE else (0.0, 1.0)
    return tuple(float(f"{other:.6g}") for other in (*moved, value * 10, value / 10))


def _is_axis(place: Place) -> bool:
    if isinstance(place.parent, ast.keyword):
        return place.parent.arg in AXIS_KEYWORDS
    return isinstance(place.parent, ast.Call) and place.field == "args" and name_of(place.parent.func) in AXES


@on(ast.Constant)
def other_constant(place: Place) -> Iterator[New]:
    value = place.node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif value is None and not isinstance(place.parent, (ast.Compare, ast.Subscript, ast.Tuple)):
        yield ast.Constant(0)
    elif isinstance(value, str) and not isinstance(place.parent, ast.Expr):  # a docstring is free
        yield from (ast.Constant(other) for other in STRINGS.get(value, (value + "_",)))


# ---- names ------------------------------------------------------------------------------------------


@on(ast.Name, ast.Attribute)
def sibling(place: Place) -> Iterator[New]:
    """Another function, type or constant of the library: amin for amax."""
    node, field = place.node, "attr" if isinstance(place.node, ast.Attribute) else "id"
    own = _is_self(node.value) if field == "attr" else node.id in _variables(place.nearest(ast.FunctionDef))
    if isinstance(node.ctx, ast.Load) and not own:
        yield from (like(node, **{field: other}) for other in SIBLINGS.get(getattr(node, field), ()))


@on(ast.Attribute)
def other_attribute(place: Place) -> Iterator[New]:
    """Another attribute of the same object that this cell mentions: self.W_k for self.W_q."""
    node = place.node
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, ast.Name) or _is_module(node.value):
        return
    called = place.field == "func"
    scope = place.nearest(ast.ClassDef) if node.value.id == "self" else place.nearest(ast.FunctionDef)
    for other in _attributes(scope, node.value.id, called):
        yield like(node, attr=other)


def _attributes(scope: ast.AST, owner: str, called: bool) -> list[str]:
    """Return the attributes of `owner` that are used in `scope` the same way; of self, all of them."""
    calls = {id(node.func) for node in ast.walk(scope) if isinstance(node, ast.Call)}
    found = {
        node.attr: None
        for node in ast.walk(scope)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
        if owner == "self" or (id(node) in calls) == called
    }
    return list(found)


@on(ast.Name)
def other_variable(place: Place) -> Iterator[New]:
    """Another parameter or variable of the same function that has a value by now."""
    function = place.nearest(ast.FunctionDef)
    known = _variables(function, place.node.lineno)
    if isinstance(place.node.ctx, ast.Load) and place.node.id in known:
        yield from (ast.Name(other, ast.Load()) for other in known)


def _variables(function: ast.AST, line: int = sys.maxsize) -> list[str]:
    """Return the parameters of a function and what it assigns before a line, comprehensions aside."""
    inner = {
        id(n) for c in ast.walk(function) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)
    }
    stored = [
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if node.lineno < line and id(node) not in inner and not node.id.startswith("_")
    ]
    return list(dict.fromkeys([*_parameters(function), *stored]))


def _parameters(function: ast.AST) -> list[str]:
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
        return []
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg != "self"]


@on(ast.Attribute)
def attribute_dropped(place: Place) -> Iterator[New]:
    if place.node.attr in ("T", "mT", "values", "indices", "data") and place.field != "func":
        yield place.node.value


# ---- calls ------------------------------------------------------------------------------------------


@on(ast.Call)
def argument_dropped(place: Place) -> Iterator[New]:
    for name in ("args", "keywords"):
        given = getattr(place.node, name)
        yield from (like(place.node, **{name: without(given, index)}) for index in range(len(given)))


@on(ast.Call)
def arguments_swapped(place: Place) -> Iterator[New]:
    if name_of(place.node.func) not in EITHER_ORDER:
        for index in range(len(place.node.args) - 1):
            yield like(place.node, args=swapped(place.node.args, index))


@on(ast.Call)
def call_dropped(place: Place) -> Iterator[New]:
    """f(x) becomes x, and x.f() becomes x."""
    function = place.node.func
    if (
        isinstance(function, ast.Attribute)
        and not _is_module(function.value)
        and not _is_self(function.value)
    ):
        yield function.value
    elif place.node.args and not isinstance(place.node.args[0], (ast.Starred, ast.GeneratorExp)):
        yield place.node.args[0]


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@on(ast.Call)
def biased_variance(place: Place) -> Iterator[New]:
    if name_of(place.node.func) in ("var", "std") and not _has(place.node, "correction", "unbiased"):
        keyword = ast.keyword("correction", ast.Constant(0))
        yield like(place.node, keywords=[*place.node.keywords, keyword])


def _has(call: ast.Call, *keywords: str) -> bool:
    return any(keyword.arg in keywords for keyword in call.keywords)


@on(ast.Call)
def plain_list_of_modules(place: Place) -> Iterator[New]:
    if name_of(place.node.func) == "ModuleList":
        yield like(place.node, func=ast.Name("list", ast.Load()))


# ---- indices and displays ---------------------------------------------------------------------------


@on(ast.Slice)
def other_slice(place: Place) -> Iterator[New]:
    node = place.node
    for bound in ("lower", "upper", "step"):
        if getattr(node, bound) is not None:
            yield like(node, **{bound: None})
    if node.lower is None:
        yield like(node, lower=ast.Constant(1))
    if node.upper is None:
        yield like(node, upper=written(-1))


@on(ast.Subscript)
def index_dropped(place: Place) -> Iterator[New]:
    if isinstance(place.node.ctx, ast.Load):
        yield place.node.value


@on(ast.Tuple, ast.List)
def other_items(place: Place) -> Iterator[New]:
    """An item less, or two neighbours in the other order."""
    items = place.node.elts
    if isinstance(place.node.ctx, ast.Load):
        yield from (like(place.node, elts=without(items, index)) for index in range(len(items)))
        yield from (like(place.node, elts=swapped(items, index)) for index in range(len(items) - 1))


@on(ast.Dict)
def other_entries(place: Place) -> Iterator[New]:
    keys, values = place.node.keys, place.node.values
    yield from (ast.Dict(without(keys, i), without(values, i)) for i in range(len(keys)))
    yield from (ast.Dict(keys, swapped(values, i)) for i in range(len(keys) - 1))
