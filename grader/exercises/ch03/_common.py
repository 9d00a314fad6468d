"""What 3.1 and 3.6 share: mistakes in weighing scores, and sentences about the steps before and after."""

from __future__ import annotations

from grader.exercises.edits import edit
from transformer_lab.language import _

# ---- mistakes of one line, which both answers have: weights = torch.softmax(scores, dim=-1) ----------

SOFTMAX = "torch.softmax(scores, dim=-1)"

OVER_QUERIES = edit(
    "over queries",
    "Your softmax runs over the queries (dim=-2): every column sums to 1. Each query shares out "
    "one unit of weight among the keys, so every row must sum to 1: dim=-1.",
    "dim=-1",
    "dim=-2",
)
OVER_EVERYTHING = edit(
    "over everything",
    "One softmax runs over all pairs of a sentence, so the whole table sums to 1. "
    "Every row, that is every query, needs a softmax of its own.",
    SOFTMAX,
    "torch.softmax(scores.flatten(-2), dim=-1).view_as(scores)",
)
OVER_THE_BATCH = edit(
    "over the batch",
    "Your softmax runs over the batch (dim=0), so sentences compete with each other. "
    "The keys stand on the last axis: dim=-1.",
    "dim=-1",
    "dim=0",
)
NO_SOFTMAX = edit(
    "no softmax",
    "The scores are used as weights directly. Softmax is missing: weights are positive and sum to 1.",
    SOFTMAX,
    "scores",
)
SIGMOID = edit(
    "sigmoid",
    "A sigmoid looks at each score alone, so a row does not sum to 1. Softmax makes keys compete.",
    SOFTMAX,
    "torch.sigmoid(scores)",
)
UNIFORM = edit(
    "uniform",
    "Every key gets the same weight, so your output is the plain mean: the scores have no say.",
    SOFTMAX,
    "torch.full_like(scores, 1 / scores.size(-1))",
)
FIRST_KEY = edit(
    "first key",
    "Each query takes everything from the first token.",
    SOFTMAX,
    "(torch.arange(scores.size(-1)) == 0).to(scores.dtype).expand_as(scores)",
)
PREFIX_MEAN = edit(
    "prefix mean",
    "Each token takes the plain mean of itself and the tokens before it: the scores have no say.",
    SOFTMAX,
    "torch.ones_like(scores).tril() / torch.ones_like(scores).tril().sum(-1, keepdim=True)",
)
IDENTITY = edit(
    "identity",
    "Each token attends only to itself, so attention does nothing.",
    SOFTMAX,
    "torch.eye(scores.size(-2), scores.size(-1), dtype=scores.dtype).expand_as(scores)",
)
LARGEST_ONLY = edit(
    "largest only",
    "Each query takes only the key with the largest score. Softmax is a soft choice: every key "
    "counts by its weight, and so the gradient can flow.",
    SOFTMAX,
    "nn.functional.one_hot(scores.argmax(-1), scores.size(-1)).to(scores.dtype)",
)

# ---- sentences --------------------------------------------------------------------------------------

NO_SCALE = _(
    "The scores are not divided by the root of the width: they are too large, and the softmax too sure of itself."
)
TIMES_ROOT = _("The scores are multiplied by the root of the width; divide by it.")
SCALE_AFTER_SOFTMAX = _(
    "You divide the weights, after softmax, so a row no longer sums to 1. Divide the scores."
)
NOT_TRANSPOSED = _(
    "A product meets shapes that do not fit. The scores are the matrix product Q @ K.transpose(-2, -1): row i of Q "
    "meets row j of K (* would multiply number by number). The weights then stand in front: weights @ V."
)
RESHAPED = _(
    "view or reshape gives K the right shape but leaves the numbers in their old order, so they no longer belong to "
    "their token. Swap the axes: K.transpose(-2, -1)."
)
WEIGHTS_AT_K = _(
    "The weights are applied to the keys. Keys only decide where to look; what is collected are the values: "
    "weights @ V."
)
WEIGHTS_TIMES_V = _(
    "The star multiplies number by number. The weighted sum is a matrix product: weights @ V."
)
WEIGHTS_TRANSPOSED = _("The table of weights is transposed: row i must hold what query i gives to each key.")
FLOAT32_ONLY = _("The result is cast to float32. Keep the dtype of the input.")
