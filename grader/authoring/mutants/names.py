"""Which names a learner takes for one another, and which arguments are axes."""

from __future__ import annotations

MODULES = {"torch", "nn", "F", "math", "np"}

# Each name of a line for each other name of the line.
_GROUPS = """
    amax amin amax
    max min
    argmax argmin
    maximum minimum
    clamp_min clamp_max
    sum mean prod amax
    cumsum cumprod
    sin cos
    exp exp2 expm1
    log log2 log10
    sqrt rsqrt
    tril triu
    cat stack
    zeros ones
    zeros_like ones_like
    any all
    softmax log_softmax
    relu gelu tanh
    silu sigmoid gelu
    erf tanh
    floor ceil
    var std
    unsqueeze squeeze
    eval train
    no_grad enable_grad
    append insert
    float32 float64
    keys values
    PostNorm PreNorm
    encode decode
"""

# These for those, but not back: the other way round nothing changes that a check could or should see.
_ONE_WAY = {
    "reshape": ("view",),
    "randn": ("rand",),
    "LayerNorm": ("RMSNorm",),
    "bool": ("float", "uint8"),
    "int64": ("int32",),
    "long": ("int",),
    "norm": ("sum",),
    "full_like": ("zeros_like",),
    "pow": ("mul",),
    "block_diag": ("cat", "stack"),
    "target_mask": ("padding_mask",),
    "padding_mask": ("target_mask",),
    "ValueError": ("TypeError", "RuntimeError"),
    "enumerate": ("list",),
    "ModuleList": ("Sequential",),
    "BOS": ("EOS", "PAD"),
    "EOS": ("BOS", "PAD"),
    "PAD": ("BOS", "EOS"),
    "inf": ("nan", "e"),
}

_AXES = """
    transpose swapaxes sum mean prod amax amin max min argmax argmin softmax log_softmax size unsqueeze
    squeeze cumsum gather index_fill index_select cat stack norm var std any all sort select narrow flatten
    unbind
"""

STRINGS = {
    "-inf": ("inf", "-1e9", "-20"),
    "pre": ("post", "other"),
    "post": ("pre", "other"),
    "<unk>": ("<pad>",),
    "<pad>": ("<unk>",),
}

# Functions whose integer arguments are axes; their two axes may change places.
AXES = set(_AXES.split())
AXIS_KEYWORDS = {"dim", "axis", "dims", "dim0", "dim1"}
HAVE_IN_PLACE = {"masked_fill", "index_fill", "clamp_min", "exp", "pow", "neg", "sqrt", "sin", "cos"}
EITHER_ORDER = {"transpose", "swapaxes", "max", "min", "maximum", "minimum"}


def _all_siblings() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: list(others) for name, others in _ONE_WAY.items()}
    for line in filter(None, (line.split() for line in _GROUPS.split("\n"))):
        for name in line:
            mine = found.setdefault(name, [])
            mine += [other for other in line if other != name and other not in mine]
    return {name: tuple(others) for name, others in found.items()}


SIBLINGS = _all_siblings()

# Keywords that a call may have been given: {function: (name, value), …}.
EXTRA = {
    "var": (("correction", 0),),
    "std": (("correction", 0),),
    "tril": (("diagonal", 1), ("diagonal", -1)),
    "triu": (("diagonal", 1), ("diagonal", -1)),
    "Linear": (("bias", False),),
    "LayerNorm": (("elementwise_affine", False), ("eps", 0.1)),
    "sorted": (("reverse", True),),
    "enumerate": (("start", 1),),
}
