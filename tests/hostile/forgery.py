"""Code that tries to get marks without an answer. Each must earn exactly what its answers are worth."""

from __future__ import annotations

from grader.exercises import of_chapter
from tests.hostile.kit import CHAPTER, EXERCISES, NOTHING, Case, case, notebook

# every name that is asked for, bound to something that claims to be right
_ANSWERS = "\n" + " = ".join(exercise.symbol for exercise in of_chapter(CHAPTER)) + " = {0}\n"

EQUAL_TO_EVERYTHING = """
class Anything(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __bool__(self): return True
    def __hash__(self): return 0
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __iter__(self): return iter([self])
    def __len__(self): return 1
"""

TENSOR_SUBCLASS = """
import torch
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("allclose", "equal", "isclose", "eq", "all", "any"): return torch.tensor(True)
        return super().__torch_function__(func, types, args, kwargs or {})
def yes(*a, **k): return torch.zeros(3).as_subclass(Yes)
"""

FAKE_SHAPE = """
import torch
class Shaped(torch.Tensor):
    shape = property(lambda self: torch.Size([2, 5, 8]))
    size = lambda self, *a: 8
def yes(*a, **k): return torch.zeros(1).as_subclass(Shaped)
"""

PATCHED_COMPARISONS = """
import torch, numpy.testing, builtins, unittest
true = lambda *a, **k: True
torch.allclose = torch.equal = torch.isclose = true
torch.testing.assert_close = numpy.testing.assert_allclose = numpy.testing.assert_array_equal = true
torch.Tensor.allclose = torch.Tensor.equal = torch.Tensor.__eq__ = true
builtins.all = builtins.any = true
"""

PATCHED_CHECKS = """
import sys, transformer_lab, transformer_lab.checking as checking
transformer_lab.check = transformer_lab.grade = checking.check = lambda *a, **k: 1e9
for name, module in list(sys.modules.items()):
    if name.startswith("transformer_lab.checking"):
        for attribute in ("difference", "agree", "judge", "run_check", "check", "grade"):
            if hasattr(module, attribute): setattr(module, attribute, lambda *a, **k: None)
"""

PATCHED_PROBES = """
from transformer_lab.checking.probes import core as probe
from transformer_lab.checking.stored import wire
def passed(symbol, case): return probe.Observation({"passed": True, "score": 1e9, "kind": "function"})
probe.observe = passed
"""

PATCHED_WIRE = """
import torch
from transformer_lab.checking.stored import wire
wire.pack = lambda tree: {0}
"""

AST_TRANSFORMER = """
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
    def visit_Call(self, node): return ast.Constant(1000)
get_ipython().ast_transformers.append(NoAsserts())
"""

INPUT_TRANSFORMER = """
get_ipython().input_transformers_cleanup.append(lambda lines: ["print('all passed')\\n"])
"""

RUN_CELL = """
shell = get_ipython()
shell.run_cell = shell.run = type(shell).run_cell = lambda *a, **k: {"outputs": [], "ok": True, "error": None}
"""

FAKE_VERDICT = """
from IPython.display import HTML, Javascript, display
print("2.1 PositionalEncoding: all 7 rows pass\\n1000")
display(HTML("<script>alert('forged')</script><b>all rows pass</b>"))
display(Javascript("alert('forged')"))
display({"text/html": "<img src=x onerror=alert('forged')>", "image/svg+xml": "<svg onload=alert('forged')>"},
raw=True)
"""

RAW_FRAMES = """
import json, os, struct, threading
def frame(n):
    text = json.dumps({"number": n, "ok": True, "passed": True, "score": 1e9}).encode()
    return struct.pack(">II", len(text), 0) + text
for n in range(1, 60):
    try: os.write(3, frame(n))
    except OSError: break
"""

HARD_CODED = """
import torch
from torch import nn
from transformer_lab.checking.stored import recorded
def _cases(exercise):
    for row in recorded.recorded_key(exercise).rows:
        for item in row.cases: yield item.case.inputs, item.expected
def _look_up(exercise, args):
    for inputs, expected in _cases(exercise):
        known = inputs.get("args", [])
        same = (torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b for a, b in zip(args, known))
        if len(known) == len(args) and all(same):
            return expected["out"]
    return torch.zeros(1)
def position_similarity(d_model, offsets): return _look_up("2.5", (d_model, offsets))
def shift_matrix(k, d_model): return _look_up("2.6", (k, d_model))
"""

LONG_NAMES = """
long = type("T" * (9 << 20), (Exception,), {})
def odd(*a, **k): return long()
odd.__name__ = "n" * (9 << 20)
"""

WHEN_NOT_GRADED = """
import os
if "NBGRADER_EXECUTION" not in os.environ:
    def position_similarity(d_model, offsets): return offsets * 0.0
"""

DEEP_JSON = """
import os, struct
text = b'{"number": 1, "a": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
os.write(3, struct.pack(">II", len(text), 0) + text)
"""


def _bound(setup: str, value: str, student: str, **more) -> Case:
    """Every answer cell holds the forgery; the tests ask for what it bound."""
    source = setup + _ANSWERS.format(value)
    return case(student, notebook(dict.fromkeys(EXERCISES, source)), NOTHING, **more)


def _blank(setup: str, student: str, **more) -> Case:
    return case(student, notebook({}, first=setup), NOTHING, **more)


def cases() -> list[Case]:
    edited = notebook({})
    for value, cell in zip(
        ("-1", "float('nan')", "None", "1e9"),
        (c for c in edited.cells if c.metadata.get("nbgrader", {}).get("grade")),
        strict=True,
    ):
        cell.source = value
    return [
        _blank(AST_TRANSFORMER, "forge-ast-transformer"),
        _blank(INPUT_TRANSFORMER, "forge-input-transformer"),
        _blank(RUN_CELL, "forge-run-cell"),
        _bound(EQUAL_TO_EVERYTHING, "Anything()", "forge-equal-to-everything"),
        _bound(TENSOR_SUBCLASS, "yes", "forge-tensor-subclass"),
        _bound(FAKE_SHAPE, "yes", "forge-fake-shape"),
        _blank(PATCHED_COMPARISONS, "forge-patched-comparisons"),
        _blank(PATCHED_CHECKS, "forge-patched-checks"),
        _blank(PATCHED_PROBES, "forge-patched-probes"),
        _blank(PATCHED_WIRE.format("b'\\xff' * 1000"), "forge-wire-garbage"),
        _blank(PATCHED_WIRE.format("b'\\0' * (100 << 20)"), "forge-wire-100MB"),
        _blank(FAKE_VERDICT, "forge-printed-verdict"),
        case("forge-cell-values", edited, NOTHING, note="edited"),
        _bound(LONG_NAMES, "odd", "forge-long-names"),
        _bound(LONG_NAMES, "long()", "forge-long-type-names"),
        _blank(RAW_FRAMES, "forge-raw-frames"),
        _blank(DEEP_JSON, "forge-deep-json"),
        case("forge-hard-coded", notebook({"2.5": HARD_CODED, "2.6": HARD_CODED}), NOTHING),
        case("forge-when-not-graded", notebook(last=None, after_2_5=WHEN_NOT_GRADED), {"2.5": 0.0}),
    ]
