"""8.2 tie_weights: afterwards `embedding.emb` and `output.proj` hold one and the same parameter.

There is no row for another device: the function is handed modules and no tensor, and makes none.
"""

from __future__ import annotations

from torch import nn  # noqa: F401 (mistakes use it)

from grader.exercises.draw import Draw
from grader.exercises.edits import edit
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _

# ---- what is right ----------------------------------------------------------------------------------


def reference(embedding, output):
    del output.proj._parameters["weight"]
    output.proj._parameters["weight"] = embedding.emb._parameters["weight"]


def tie_weights(embedding, output):
    output.proj.weight = embedding.emb.weight


def embedding_takes_the_matrix(embedding, output):
    embedding.emb.weight = output.proj.weight


def register_parameter(embedding, output):
    output.proj.register_parameter("weight", embedding.emb.weight)
    return output


def by_setattr(embedding, output):
    setattr(output.proj, "weight", getattr(embedding.emb, "weight"))  # noqa: B009, B010


# ---- rows -------------------------------------------------------------------------------------------


def _case(draw: Draw, equal: bool, **sizes: int) -> Case:
    s = draw.sizes(V=(9, 12), d=(5, 7), n=(3, 4)) | sizes
    table = draw.normal(s["V"], s["d"])
    return Case(
        "tie",
        {
            "table": table,
            "matrix": table if equal else draw.normal(s["V"], s["d"]),
            "ids": draw.integers(0, s["V"] - 1, s["n"]),
            "cotangent": draw.normal(s["n"], s["V"]),
        },
    )


def _unequal(draw: Draw) -> list[Case]:
    return [_case(draw, equal=False), _case(draw, equal=False, V=6, d=6)]  # a square table hides a transpose


def _equal(draw: Draw) -> list[Case]:
    return [_case(draw, equal=True), _case(draw, equal=True, V=6, d=6, n=6)]


ROWS = (
    Row(
        "one tensor",
        "embedding.emb and output.proj hold one and the same parameter",
        _unequal,
        looks=("shared", "parameters", "names", "alike"),
        weight=2,
    ),
    Row(
        "values kept",
        "its values are those that one of the two had before",
        _unequal,
        looks=("kept",),
        needs=("one tensor",),
    ),
    Row(
        "trained together",
        "a training step moves both, by the sum of both gradients",
        _equal,
        looks=("out", "table", "matrix"),
        needs=("one tensor",),
    ),
)

SPOKEN = {
    "parameters": _("the number of parameters of both together"),
    "shared": _("whether both use the same memory"),
    "names": _("the list of output's parameters"),
    "alike": _("whether both have equal values"),
    "kept": _("whether the shared tensor still holds the values of one of the two"),
    "out": _("output(embedding(ids))"),
    "table": _("the embedding's table after a training step"),
    "matrix": _("the output layer's matrix after a training step"),
}

# ---- known mistakes ---------------------------------------------------------------------------------

TYING = "output.proj.weight = embedding.emb.weight"

MISTAKES = (
    # Three more would look alike from outside: a local variable, a forgotten assignment, a returned copy.
    edit(
        "nothing tied",
        "Nothing was tied: giving a local variable another value does not touch the modules. Assign to "
        "output.proj.weight.",
        TYING,
        "output = embedding",
    ),
    edit(
        "copied",
        "The values were copied. They are equal now and will part at the first training step. Share the "
        "parameter itself.",
        TYING,
        "output.proj.weight.data.copy_(embedding.emb.weight.data)",
    ),
    edit(
        "same memory, two parameters",
        "Both use the same memory, yet they are two parameters: the optimizer would step twice, and moving "
        "the model to another device would part them. Assign the parameter, not its .data.",
        TYING,
        "output.proj.weight.data = embedding.emb.weight.data",
    ),
    edit(
        "wrong attribute",
        "You gave output an attribute weight, which nothing uses. The matrix is output.proj.weight.",
        TYING,
        "output.weight = embedding.emb.weight",
    ),
    edit(
        "module shared",
        "You put the embedding module in the place of proj. An embedding looks rows up, it does not "
        "multiply. Share the weight only.",
        TYING,
        "output.proj = embedding.emb",
    ),
    edit(
        "one level too high",
        "embedding is a whole module without a weight of its own. Its table is embedding.emb.weight.",
        TYING,
        "output.proj.weight = embedding.weight",
    ),
    edit(
        "tensor, not parameter",
        "Only a parameter fits here: embedding.emb.weight itself. A clone or a transpose of it is a new "
        "tensor, and embedding.emb is a whole module.",
        TYING,
        "output.proj.weight = embedding.emb.weight.clone()",
    ),
    edit(
        "transposed",
        "You transposed the table. nn.Linear stores its matrix as [V, d], which is the embedding's shape "
        "already.",
        TYING,
        "output.proj.weight = nn.Parameter(embedding.emb.weight.detach().t())",
    ),
    edit(
        "frozen",
        "The shared tensor no longer requires a gradient, so it would never learn.",
        TYING,
        "embedding.emb.weight.requires_grad_(False)\n    " + TYING,
    ),
    edit(
        "new layer",
        "You made a new linear layer, with a bias that the contract does not have. Keep the layer, change "
        "its weight.",
        TYING,
        "output.proj = nn.Linear(embedding.emb.embedding_dim, embedding.emb.num_embeddings)\n    " + TYING,
    ),
    edit(
        "values lost",
        "The shared tensor has new values; the old ones are lost.",
        TYING,
        "nn.init.zeros_(embedding.emb.weight)\n    " + TYING,
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="8.2",
    symbol="tie_weights",
    kind="function",
    parameters=("embedding", "output"),
    points=3,
    todos=("8.2",),
    rows=ROWS,
    reference=reference,
    answer=tie_weights,
    mistakes=MISTAKES,
    alternatives=(embedding_takes_the_matrix, register_parameter, by_setattr),
    spoken=SPOKEN,
    hints={
        "8.2": (
            _(
                "Two attributes should name one object. What does a plain assignment do in Python: copy, "
                "or name?"
            ),
            _("embedding.emb.weight is [V, d]; output.proj.weight is [V, d]."),
            _("assign the parameter of the one module to the attribute weight of the other module's layer"),
        )
    },
)
