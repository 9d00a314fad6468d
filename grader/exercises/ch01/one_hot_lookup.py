"""1.5 one_hot_lookup: rows of a table by a matrix product with one-hot vectors."""

from __future__ import annotations

import math  # noqa: F401 (a mistake uses it)

import torch
from torch.nn import functional as F

from grader.exercises import rows
from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(ids, table):
    """einsum over one-hot vectors made by comparing with every number there is."""
    places = torch.arange(table.shape[0], device=ids.device)
    hot = torch.eq(ids.unsqueeze(-1), places).to(table.dtype)  # [..., V]
    return torch.einsum("...v,vd->...d", hot, table)


def one_hot_lookup(ids, table):
    V = table.size(0)
    hot = F.one_hot(ids, V).to(table.dtype)
    return hot @ table


def f_one_hot(ids, table):
    return F.one_hot(ids, num_classes=len(table)).type_as(table) @ table


def rows_of_the_identity(ids, table):
    one = torch.eye(table.size(0), dtype=table.dtype, device=table.device)
    return torch.matmul(one[ids], table)


def scatter(ids, table):
    hot = torch.zeros(*ids.shape, table.shape[0], dtype=table.dtype, device=table.device)
    hot.scatter_(-1, ids.unsqueeze(-1), 1.0)
    return torch.tensordot(hot, table, dims=1)


def sum_over_the_vocabulary(ids, table):
    """The product written out: V terms, each a zero or a one times a row."""
    return sum((ids == v).to(table.dtype).unsqueeze(-1) * table[v] for v in range(table.size(0)))


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, axes: int) -> Case:
    """Ids of one to three axes; the largest number is not among them, so the width cannot be guessed."""
    sizes = draw.sizes(V=(9, 12), d=(5, 7), a=[2, 3], b=[3, 4], c=[8])
    shape = [sizes["c"], sizes["b"], sizes["a"]][:axes][::-1]
    ids = draw.integers(0, sizes["V"] - 2, *shape)
    ids.view(-1)[:3] = torch.tensor([0, sizes["V"] - 2, 0])
    return Case("function", {"args": [ids, draw.normal(sizes["V"], sizes["d"])]})


def _equal_sizes(draw: Draw, axes: int) -> Case:
    """A case in which no axis of ids or table can be told by its length."""
    size = draw.size(5, 7)
    ids = draw.integers(0, size - 1, *[size] * axes)
    ids.view(-1)[0] = size - 1
    return Case("function", {"args": [ids, draw.normal(size, size)]})


def _vector(draw: Draw) -> list[Case]:
    return [_case(draw, 1), _equal_sizes(draw, 1)]


def _product(draw: Draw) -> list[Case]:
    return [Case("takes rows", _case(draw, 2).inputs)]


def _any_shape(draw: Draw) -> list[Case]:
    single = _case(draw, 1)
    single.inputs["args"][0] = torch.tensor(2)
    return [_case(draw, 2), _case(draw, 3), single, _equal_sizes(draw, 2)]


def _gradient(draw: Draw) -> list[Case]:
    case = _case(draw, 2)
    ids, table = case.inputs["args"]
    case.inputs.update(wrt=["1"], cotangents=[draw.normal(*ids.shape, table.size(1))])
    return [case]


def _batch(draw: Draw) -> list[Case]:
    return [_case(draw, 2)]


ROWS = (
    Row(
        "rows",
        "each id of a vector [n] gives its row of the table: [n, d]",
        _vector,
        looks=("out",),
        weight=1.5,
    ),
    Row(
        "product",
        "the rows come from a matrix product, not from indexing",
        _product,
        looks=("way",),
        needs=("rows",),
        weight=2,
    ),
    Row(
        "any shape",
        "ids of any shape [...] give [..., d]",
        _any_shape,
        looks=("out",),
        needs=("rows",),
    ),
    Row(
        "gradient",
        "the gradient reaches the rows of the table that were asked for",
        _gradient,
        looks=("grad.1",),
        needs=("rows",),
    ),
    Row(
        "input kept",
        "ids and table are left unchanged",
        _batch,
        looks=("changed",),
        needs=("rows",),
        weight=0.5,
    ),
    rows.float64(_batch, _("a float64 table gives a float64 result"), ("rows",), weight=0.5),
    rows.device(
        _batch,
        _("new tensors are made where the table is, so that it also runs on a GPU"),
        ("rows",),
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------

MISTAKES = (
    edit(
        "indexing",
        "The numbers are right, but the rows were taken by their number (table[ids], F.embedding, index_select, …). "
        "Make the one-hot matrix [..., V] and multiply it with the table: that is what this exercise is about.",
        "hot @ table",
        "table[ids]",
    ),
    edit(
        "width d",
        "The one-hot vectors are d long. Each needs one place for every word, so V, the number of rows of the table.",
        "table.size(0)",
        "table.size(1)",
    ),
    edit(
        "width guessed",
        "Without a second argument, F.one_hot makes vectors as long as the largest id that happens to occur. Tell it V.",
        "F.one_hot(ids, V)",
        "F.one_hot(ids)",
    ),
    edit(
        "integers",
        "F.one_hot gives int64, and a product needs one dtype on both sides. Convert the one-hot matrix to the table's dtype.",
        ".to(table.dtype)",
        "",
    ),
    edit(
        "always float32",
        "The one-hot matrix is always float32, so a float64 table cannot be multiplied with it. Use the table's own dtype.",
        ".to(table.dtype)",
        ".float()",
    ),
    edit(
        "table first",
        "The two factors are in the wrong order: one-hot [..., V] times table [V, d] gives [..., d].",
        "hot @ table",
        "table @ hot",
    ),
    edit(
        "transposed",
        "The table is transposed. It is [V, d] already, and its V rows meet the V places of a one-hot vector.",
        "hot @ table",
        "hot @ table.T",
    ),
    edit(
        "element by element",
        "* multiplies element by element. A matrix product is written @.",
        "hot @ table",
        "hot * table",
    ),
    edit(
        "column picture",
        "table.T @ hot is the product for one-hot columns. Here they are rows, [..., V]: the one-hot vectors come first, "
        "and the table stays as it is.",
        "hot @ table",
        "table.T @ hot",
    ),
    edit(
        "from one",
        "The comparison counts the rows from 1, so every id gets the row before its own. Rows count from 0.",
        "F.one_hot(ids, V)",
        "(ids[..., None] == torch.arange(1, V + 1))",
    ),
    edit(
        "scaled",
        "The rows are multiplied by √d here. That factor belongs to TokenEmbedding; this is the bare lookup.",
        "hot @ table",
        "hot @ table * math.sqrt(table.size(1))",
    ),
    edit(
        "flattened",
        "ids were flattened and their shape was lost: [B, n] should give [B, n, d].",
        "F.one_hot(ids, V)",
        "F.one_hot(ids.reshape(-1), V)",
    ),
    edit(
        "summed",
        "The one-hot vectors of a sentence are added up, so you get the sum of its rows. Each id keeps its own row.",
        "hot @ table",
        "hot.sum(dim=-2) @ table",
    ),
    edit(
        "softened",
        "After a softmax the one-hot vectors are no longer one-hot: every row is mixed in a little.",
        "hot @ table",
        "hot.softmax(dim=-1) @ table",
    ),
    edit(
        "one-hot only",
        "These are the one-hot vectors themselves. Multiply them with the table.",
        "hot @ table",
        "hot",
    ),
    edit(
        "detached",
        "The table was detached (.detach(), .data or no_grad), so no gradient reaches it and it could not learn.",
        "hot @ table",
        "hot @ table.detach()",
    ),
    edit(
        "inverted",
        "Zeros and ones are swapped: you add up all rows except the one that was asked for.",
        "hot @ table",
        "(1 - hot) @ table",
    ),
    edit(
        "ones up to the id",
        "Your vectors are one in every place up to the id, so rows are summed. One-hot means a single one, where place == id.",
        "F.one_hot(ids, V)",
        "(torch.arange(V) <= ids[..., None])",
    ),
    edit(
        "in place",
        "A name that ends in an underscore (unsqueeze_) changes the caller's own ids. Without it, they stay as they are.",
        "ids.unsqueeze(-1)",
        "ids.unsqueeze_(-1)",
        of=scatter,
    ),
    edit(
        "on the CPU",
        "Your code makes the one-hot vectors on the CPU, whatever device ids and table are on. Make them with "
        "device=table.device.",
        ", device=table.device",
        "",
        of=scatter,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="1.5",
    symbol="one_hot_lookup",
    kind="function",
    parameters=("ids", "table"),
    points=4,
    todos=("1.5",),
    rows=ROWS,
    reference=reference,
    answer=one_hot_lookup,
    mistakes=MISTAKES,
    alternatives=(f_one_hot, rows_of_the_identity, scatter, sum_over_the_vocabulary),
    spoken={"way": _("the way from ids to rows"), "grad.1": _("the gradient of the table")},
    equivalent={"table.size(0) → table.size(-2)": "The table is [V, d]: axis -2 of two axes is axis 0."},
    hints={
        "1.5": (
            _(
                "Which vector picks row 2 out of a table with 5 rows when you multiply it with the table from the left?"
            ),
            _(
                "ids [...] → one-hot [..., V]; one-hot [..., V] times table [V, d] → [..., d]. V is the number of rows "
                "of the table."
            ),
            _(
                "hot = one-hot vectors of ids with V places (torch.nn.functional has a function for them), in the "
                "table's dtype; return the matrix product of hot and the table"
            ),
        )
    },
)
