"""Right answers with the habits of real people. All must get full marks."""

from __future__ import annotations

from tests.hostile.kit import Case, case, changed, notebook, right_answers

NOISY = """
import sys, warnings
def position_similarity(d_model, offsets):
    warnings.warn("careful")
    print("working on it", file=sys.stderr)
    print("done")
    theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.cos(offsets[:, None] * theta).sum(dim=-1)
"""

PLOTS = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
"""

GLOBAL = """
BASE = 10000.0
def position_similarity(d_model, offsets):
    theta = BASE ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.cos(offsets[:, None] * theta).sum(dim=-1)
"""

EARLIER_CELL = """
def position_similarity(d_model, offsets):
    pe = PositionalEncoding(d_model, int(offsets.abs().max()) + 1).pe
    return pe[offsets.abs().long()] @ pe[0]
"""

HELPER = "def my_theta(d_model):\n    return 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)"
WITH_HELPER = """
def position_similarity(d_model, offsets):
    return torch.cos(offsets[:, None] * my_theta(d_model)).sum(dim=-1)
"""


SEEDS = "torch.manual_seed(1)\nimport random; random.seed(2)\n"
NO_GRAD = "torch.set_grad_enabled(False)\n"
MAGICS = "%timeit -n1 -r1 1 + 1\nIn[-1], _"
SHELL_LINES = "!pip install torch\n%pip install torch\n%conda install torch\nfiles = !ls\n!ls\nlen(files)\n"
PROGRESS_BAR = "from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass"


def cases() -> list[Case]:
    answer = right_answers()["2.5"]
    others = {number: text for number, text in right_answers().items() if number != "2.5"}
    own_import = "import math\nimport numpy as np\nimport torch\nfrom torch import nn"
    return [
        case("honest-noisy", notebook(changed(_2_5=NOISY))),
        case("honest-plots", notebook(after_2_5=PLOTS, last=PLOTS)),
        case("honest-global", notebook(changed(_2_5=GLOBAL))),
        case("honest-earlier-cell", notebook(changed(_2_5=EARLIER_CELL))),
        case("honest-helper-cell", notebook(changed(_2_5=WITH_HELPER), before_2_5=HELPER)),
        case("honest-answer-in-own-cell", notebook(others, after_2_5=answer)),
        case("honest-own-imports", notebook(first=own_import)),
        case("honest-float64", notebook(first="import torch\ntorch.set_default_dtype(torch.float64)")),
        case("honest-global-seed", notebook(changed(_2_5=SEEDS + answer))),
        case("honest-no-grad-left-on", notebook(changed(_2_1=NO_GRAD + right_answers()["2.1"]))),
        case("honest-magics", notebook(first="%matplotlib inline\n%precision 4", last=MAGICS)),
        case("honest-shell-lines", notebook(changed(_2_5=SHELL_LINES + answer))),
        case("honest-await", notebook(last="import asyncio\nawait asyncio.sleep(0.01)")),
        case("honest-progress-bar", notebook(last=PROGRESS_BAR)),
        case("honest-error-at-end", notebook(last="1 / 0")),
    ]
