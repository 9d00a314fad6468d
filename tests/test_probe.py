"""A probe runs a learner's code and reports in plain data, whatever that code does."""

import os
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab.checking.probes.core import PRINTED_LIMIT, Case, Observation, observe
from transformer_lab.checking.probes.describe import DESCRIBE
from transformer_lab.checking.stored.wire import pack, unpack

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def call(function, *args, **more):
    """What is observed when `function` is called with `args`."""
    return observe(function, Case("function", {"args": list(args), **more}))


def in_a_cell(source: str) -> dict:
    """Run source as a notebook's cell does: under a file name that is no file."""
    names: dict = {"torch": torch, "nn": nn, "np": np, "sys": sys}
    exec(compile(source, "<ipython-input-3-abc>", "exec"), names)
    return names


# ---- functions --------------------------------------------------------------------------------------


def test_result_is_reported_and_detached_from_what_the_learner_holds():
    kept = torch.zeros(2)
    seen = call(lambda: kept)
    kept += 1
    assert seen.values["out"].tolist() == [0, 0] and seen.problem is None


def test_each_result_of_a_tuple_has_a_name():
    seen = call(lambda x: (x + 1, [x, 2], None), X)
    assert torch.equal(seen.values["out.0"], X + 1)
    assert seen.values["out.1"][1] == 2 and seen.values["out.2"] is None and "out" not in seen.values


def test_keyword_arguments_and_argument_copies():
    seen = call(lambda x, *, by: x * by, X, kwargs={"by": 3})
    assert torch.equal(seen.values["out"], X * 3)
    call(lambda x: x.zero_(), X)
    assert X[0, 0] == 1, "a case's own tensor must never be changed by a learner"


def test_gradient_through_chosen_arguments_only():
    cotangent = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    seen = call(lambda x, y: x * y, X, 2 * X, wrt=["1"], cotangents=[cotangent])
    assert torch.equal(seen.values["grad.1"], cotangent * X) and "grad.0" not in seen.values


def test_gradient_that_an_output_does_not_need_is_none():
    seen = call(lambda x, y: x * 2, X, X, wrt=["0", "1"], cotangents=[torch.ones(2, 3)])
    assert seen.values["grad.1"] is None and torch.equal(seen.values["grad.0"], torch.full((2, 3), 2.0))


def test_detached_output_is_named():
    seen = call(lambda x: x.detach(), X, wrt=["0"], cotangents=[torch.ones(2, 3)])
    assert seen.problem.kind == "no_gradient" and "gradient" in seen.problem.text
    assert torch.equal(seen.values["out"], X), "what was seen before the trouble is kept"


def test_sparse_gradient_is_named():
    def lookup(ids, table):
        return nn.functional.embedding(ids, table, sparse=True)

    seen = call(lookup, torch.tensor([1]), X, wrt=["1"], cotangents=[torch.ones(1, 3)])
    assert seen.values["grad.1"] == {"$type": "a sparse tensor"}, "its numbers could not be compared"


def test_gradient_of_a_wrong_shape_is_no_crash():
    seen = call(lambda x: x.sum(), X, wrt=["0"], cotangents=[torch.ones(2, 3)])
    assert seen.problem.kind == "shape" and "shape" in seen.problem.text


def test_changed_inputs_are_listed():
    def changes(x, y, z):
        y += 1
        return x + z

    assert call(changes, X, X, z := X.clone()).values["changed"] == ["1"]
    assert call(lambda a, b: a + b, X, z).values["changed"] == []


def changed(function, *args, **kwargs):
    return observe(function, Case("function", {"args": list(args), "kwargs": kwargs})).values["changed"]


def test_changed_lists_and_dicts_are_listed():
    deep = {"a": [[1, 2], {"b": X}], "c": None}
    assert changed(lambda x: x.append(1), [1, 2]) == ["0"]
    assert changed(lambda x: x[1].reverse(), ["a", [1, 2]]) == ["0"]
    assert changed(lambda x, more: more.setdefault("c", 3), [1], more={"a": 1}) == ["more"]
    assert changed(lambda x: x["a"][1]["b"].mul_(2), deep) == ["0"]
    assert changed(lambda x: x.__setitem__("a", True), {"a": 1}) == ["0"], (
        "True equals 1 and is another thing"
    )
    assert changed(lambda x: x.append(x), []) == ["0"], "a list that holds itself ends no program"
    assert changed(lambda x, more: [*x, *more["a"]], [1, float("nan")], more=deep) == []


def test_resized_and_nan_inputs_are_compared_without_a_crash():
    nan = torch.tensor([float("nan"), 1.0])
    assert call(lambda x: x + 1, nan).values["changed"] == []
    assert call(lambda x: x.t_(), X).values["changed"] == ["0"]


def test_strided_input_has_another_memory_layout_and_the_same_values():
    seen = call(lambda x: (x.is_contiguous(), x.clone()), {"$": "strided", "tensor": X})
    assert seen.values["out.0"] is False and torch.equal(seen.values["out.1"], X)


# ---- results that are no tensors --------------------------------------------------------------------


class Named(tuple):
    pass


class MyTensor(torch.Tensor):
    pass


def generator():
    yield 1


def loop():
    loop = []
    loop.append(loop)
    return loop


ODD = {
    "numpy": (lambda: np.zeros(2), "numpy.ndarray"),
    "numpy number": (lambda: np.float64(1), "numpy.float64"),
    "a generator": (generator, "builtins.generator"),
    "a tensor's subclass": (lambda: torch.zeros(2).as_subclass(MyTensor), "tests.MyTensor"),
    "a module": (lambda: nn.Linear(1, 1), "torch.Linear"),
    "sparse": (lambda: torch.eye(2).to_sparse(), "a sparse tensor"),
    "elsewhere": (lambda: torch.zeros(2, device="meta"), "a tensor on meta"),
    "complex128": (lambda: torch.zeros(2, dtype=torch.complex128), "a tensor of complex128"),
    "a huge number": (lambda: 10**5000, "an integer of more than 64 bits"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_results_become_plain_data_that_can_cross_a_boundary(name):
    function, kind = ODD[name]
    seen = call(function)
    assert seen.values["out"] == {"$type": kind} and seen.problem is None
    assert unpack(pack(seen.tree()))["values"]["out"] == {"$type": kind}


def test_dictionaries_keep_their_order():
    assert call(lambda: {"b": 1, "a": 2}).values["out"] == {"$dict": [["b", 1], ["a", 2]]}


def test_a_list_that_holds_itself_is_a_problem_and_no_crash():
    assert call(loop).problem.kind == "raised"


# ---- exceptions -------------------------------------------------------------------------------------


def test_exception_names_the_line_of_the_learners_cell():
    names = in_a_cell("def f(x):\n    y = x + 1\n    return y[:, 99]\n")
    text = call(names["f"], X).problem.text
    assert "IndexError" in text and "line 3 of its cell" in text


def test_exception_quotes_the_line_when_it_is_known(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text("def f(x):\n    return x @ x\n")
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    text = call(names["f"], X).problem.text
    assert "line 2 of its cell: `return x @ x`" in text and "RuntimeError" in text


def test_exception_inside_a_library_still_names_the_learners_line():
    names = in_a_cell("def f(x):\n    helper(x)\n\ndef helper(x):\n    nn.Linear(7, 1)(x)\n")
    assert "line 5 of its cell" in call(names["f"], X).problem.text


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text for you")


class Exits(Exception):
    def __str__(self):
        sys.exit(1)


def raises(error):
    def function():
        raise error

    return function


ERRORS = {
    "SystemExit": (SystemExit(3), "SystemExit: 3"),
    "GeneratorExit": (GeneratorExit(), "GeneratorExit"),
    "an unreadable one": (Unreadable(), "Unreadable: (its text could not be read: ValueError)"),
    "one whose text exits": (Exits(), "Exits: (its text could not be read: SystemExit)"),
    "an empty one": (ValueError(), "raised ValueError at line"),
    "several lines": (ValueError("a\n\n  b"), "ValueError: a b at"),
    "a BaseException": (BaseException("all"), "BaseException: all"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_whatever_is_raised_becomes_a_sentence(name):
    error, words = ERRORS[name]
    problem = call(raises(error)).problem
    assert problem.kind == "raised" and words in problem.text and "\n" not in problem.text


def test_long_texts_are_cut():
    assert len(call(raises(ValueError("x" * 10_000))).problem.text) < 1000


def test_endless_recursion_is_a_sentence():
    names = in_a_cell("def f():\n    return f()\n")
    assert "RecursionError" in call(names["f"]).problem.text


def test_sentence_ends_with_one_full_stop():
    assert not call(len, 1, 2).problem.text.endswith("..")
    assert call(torch.reshape, X, [99]).problem.text.endswith(".")


def test_interrupt_stops_the_check():
    with pytest.raises(KeyboardInterrupt):
        call(raises(KeyboardInterrupt()))


def test_stub_is_a_todo_and_another_NotImplementedError_is_not():  # noqa: N802 (the name of the class)
    assert call(raises(NotImplementedError("TODO 2.1"))).problem.kind == "todo"
    assert call(raises(NotImplementedError("TODO 2.1"))).problem.todo == "2.1"
    for text in ("", "later", "TODO"):
        assert call(raises(NotImplementedError(text))).problem.kind == "raised"


EXPLAINED = {
    "view": (lambda x: x.T.view(6), "Use reshape"),
    "in place": (lambda x: x.add_(1).sum(), "Make a new tensor"),
    "product": (lambda x: x @ x, "Two shapes do not fit together"),
    "sum": (lambda x: x + x.T, "Two shapes do not fit together"),
    "batches": (lambda x: torch.bmm(x[None], x[None]), "Two shapes do not fit together"),
    "types": (lambda x: x @ x.long().T, "Two tensors of different types meet"),
    "layer of another type": (lambda x: nn.Linear(3, 1)(x.double()), "Two tensors of different types meet"),
    "unknown name": (lambda x: unknown_name + x, "written self.name"),  # noqa: F821
    "too few parameters": (lambda: 1, "fewer arguments than the task says"),
    "too many parameters": (lambda x, y: x, "more arguments than the task says"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_messages_that_a_newcomer_cannot_read_are_explained(name):
    function, words = EXPLAINED[name]
    text = call(function, X, wrt=["0"], cotangents=[torch.ones(())]).problem.text
    assert words in text and "(Your code raised " in text, "Python's own words stay"


def test_a_parameter_of_another_name_is_explained():
    seen = call(lambda other: other, kwargs={"x": X})
    assert "A parameter has another name than in the task" in seen.problem.text


def test_a_wrong_call_inside_the_learners_code_is_not_taken_for_their_signature():
    def helper(a):
        return a

    for wrong in (lambda x: helper(b=x), lambda x: helper(), lambda x: helper(x, x)):
        text = call(wrong, X).problem.text
        assert "in the task" not in text and "at line" in text


def test_a_long_line_is_cut(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text("def f(x):\n    return [" + "1, " * 500 + "x @ x]\n")
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    text = call(names["f"], X).problem.text
    assert "`return [1, 1, " in text and "…`" in text and len(text) < 500


# ---- modules ----------------------------------------------------------------------------------------


class Scale(nn.Module):
    def __init__(self, d, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        if bias:
            self.bias = nn.Parameter(torch.zeros(d))
        self.register_buffer("seen", torch.zeros(2))
        self.plain = torch.arange(3)

    def forward(self, x):
        out = x * self.weight + (self.bias if hasattr(self, "bias") else 0)
        return out + 100 if self.training else out


def module(symbol, **inputs):
    return observe(symbol, Case("module", inputs))


WEIGHTS = {"weight": torch.tensor([1.0, 2.0, 3.0]), "bias": torch.tensor([0.5, 0.0, 1.0])}


def test_module_reports_what_it_holds_and_computes():
    seen = module(
        Scale, make={"args": [3]}, weights=WEIGHTS, call={"args": [X]}, keep=["seen", "weight", "plain"]
    )
    assert seen.values["parameters"] == [["bias", [3]], ["weight", [3]]]
    assert seen.values["buffers"] == [["seen", [2]]]
    assert torch.equal(seen.values["out"], X * WEIGHTS["weight"] + WEIGHTS["bias"])
    assert seen.values["attr.weight.requires_grad"] is True
    assert seen.values["attr.seen.requires_grad"] is False
    assert seen.values["attr.plain"].tolist() == [0, 1, 2]


def test_mode_and_dtype_are_set():
    one = module(Scale, make={"args": [3]}, mode="train", call={"args": [X]})
    two = module(Scale, make={"args": [3]}, dtype="float64", call={"args": [X.double()]})
    assert torch.equal(one.values["out"], X + 100) and two.values["out"].dtype == torch.float64


def test_gradients_of_all_weights():
    ones = {"args": [X], "wrt": ["weights", "0"], "cotangents": [torch.ones(2, 3)]}
    seen = module(Scale, make={"args": [3]}, weights=WEIGHTS, call=ones)
    assert torch.equal(seen.values["grad.weight"], X.sum(0))
    assert seen.values["grad.bias"].tolist() == [2, 2, 2]
    assert torch.equal(seen.values["grad.0"], WEIGHTS["weight"].expand(2, 3))


def test_misnamed_attributes_are_named():
    seen = module(
        nn.Linear, make={"args": [3, 3]}, weights={"W.weight": torch.ones(3, 3), "bias": torch.ones(3)}
    )
    text = seen.problem.text
    assert seen.problem.kind == "attributes"
    assert "needs W.weight" in text and "Yours has weight" in text and "Rename" in text


def test_missing_weights_are_named_without_advice_to_rename():
    text = module(Scale, make={"args": [3, False]}, weights=WEIGHTS).problem.text
    assert "needs bias" in text and "Rename" not in text


def test_weights_of_another_shape_are_named():
    assert (
        module(Scale, make={"args": [2]}, weights=WEIGHTS).problem.text
        == "bias has shape [2]; [3] is needed."
    )


def test_missing_attribute_is_named_with_its_path():
    seen = module(Scale, make={"args": [3]}, keep=["weight.nothing"])
    assert seen.problem.kind == "attributes" and "weight.nothing" in seen.problem.text


class NoUnderscores(nn.Module):
    def _init_(self, d):
        super().__init__()


class NoSelf(nn.Module):
    def forward(x):  # noqa: N805 (that is the slip)
        return x


class NoSuper(nn.Module):
    def __init__(self, d):
        self.layer = nn.Linear(d, d)


class Forwards(nn.Module):
    def forwards(self, x):
        return x


class Number(nn.Module):
    def __new__(cls):
        return 3


def test_missing_super_init_is_explained():
    assert "super().__init__()" in module(NoSuper, make={"args": [3]}).problem.text


def test_missing_forward_is_explained_and_is_no_todo():
    seen = module(Forwards, call={"args": [X]})
    assert seen.problem.kind == "raised" and "no method named forward" in seen.problem.text


def test_misspelt_init_and_missing_self_are_explained():
    assert "two underscores" in module(NoUnderscores, make={"args": [3]}).problem.text
    assert "a method's first parameter is self" in module(NoSelf, call={"args": [X]}).problem.text


def test_class_that_makes_something_else_is_named():
    assert "Number(...) is not an nn.Module" in module(Number).problem.text


# ---- surroundings -----------------------------------------------------------------------------------


def test_warnings_prints_and_stderr_do_no_harm():
    def noisy(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        print("progress 100%", file=sys.stderr)
        print("working")
        return x

    seen = call(noisy, X)
    assert seen.problem is None and torch.equal(seen.values["out"], X) and seen.printed == "working\n"


def test_warnings_turned_into_errors_elsewhere_do_no_harm():
    def warns(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(warns, X).problem is None


def test_nothing_reaches_the_terminal(capfd):
    def prints():
        print("out")
        print("err", file=sys.stderr)

    call(prints)
    assert capfd.readouterr() == ("", "")


def test_printing_without_end_is_cut():
    assert len(call(lambda: print("x" * 10**6)).printed) == PRINTED_LIMIT


def test_closing_the_output_does_no_harm():
    assert call(lambda: sys.stdout.close()).printed == ""
    print("still there", file=open(os.devnull, "w"))  # noqa: SIM115


def test_global_state_is_the_same_for_all_and_restored():
    def changes(x):
        assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
        number = torch.rand(1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        random.seed(1)
        return number

    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with torch.no_grad():
        first = call(changes, X)
        assert not torch.is_grad_enabled()
    second = call(changes, X)
    assert first.problem is None and torch.equal(first.values["out"], second.values["out"])
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.rand(3), wanted), "the learner's own random numbers go on as before"


def test_state_is_restored_after_an_exception():
    def fails():
        torch.set_default_dtype(torch.float64)
        warnings.simplefilter("error")
        raise ValueError

    stdout, filters = sys.stdout, list(warnings.filters)
    call(fails)
    assert torch.get_default_dtype() == torch.float32
    assert sys.stdout is stdout and warnings.filters == filters


def test_a_learners_float64_default_is_kept_for_them():
    torch.set_default_dtype(torch.float64)
    try:
        assert call(lambda: torch.zeros(2)).values["out"].dtype == torch.float32
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


# ---- special probes, descriptions, crossing ---------------------------------------------------------


def raising(function, error="ValueError"):
    run = Case("function", {"args": [X]}).tree()
    return observe(function, Case("raises", {"run": run, "error": error}))


class Special(ValueError):
    pass


def test_wanted_exception_a_subclass_of_it_another_and_none():
    def fail(error):
        def function(x):
            raise error

        return function

    assert raising(fail(ValueError("no"))).values == {"raised": "ValueError"}
    assert raising(fail(Special("no"))).values == {"raised": "ValueError"}
    assert raising(fail(IndexError("no"))).values == {"raised": "IndexError"}
    assert raising(lambda x: x).values == {"raised": "nothing"}


def test_stub_is_not_taken_for_the_wanted_exception():
    def stub(x):
        raise NotImplementedError("TODO 2.7")

    assert raising(stub, "Exception").problem.kind == "todo"


KINDS = [
    (Scale, "module class"),
    (Scale(3), "module instance"),
    (int, "class"),
    (call, "function"),
    (len, "function"),
    (lambda: 1, "function"),
    ("text", "str"),
    (None, "NoneType"),
]


@pytest.mark.parametrize(("symbol", "kind"), KINDS, ids=[kind for _, kind in KINDS])
def test_symbols_are_described(symbol, kind):
    assert observe(symbol, DESCRIBE).values["kind"] == kind


def test_description_names_parameters_and_used_names():
    def function(x, dim=-1):
        """softmax in a docstring does not count"""
        return [torch.relu(item) for item in x]

    values = observe(function, DESCRIBE).values
    assert values["parameters"] == ["x", "dim"]
    assert "relu" in values["uses"] and "softmax" not in values["uses"]
    assert observe(Scale, DESCRIBE).values["parameters"] == ["d", "bias"]


class Hostile(type):
    def __getattribute__(cls, name):
        raise RuntimeError("go away")


def test_a_symbol_that_resists_description_is_a_problem_and_no_crash():
    class Resists(metaclass=Hostile):
        pass

    seen = observe(Resists, DESCRIBE)
    assert seen.problem is None or seen.problem.kind == "raised"


def test_an_observation_survives_the_crossing():
    seen = call(lambda x: (x, None, "text \ud800"), X)
    seen.printed = "half \ud800"
    back = Observation.from_tree(unpack(pack(seen.tree())))
    assert torch.equal(back.values["out.0"], X) and back.values["out.2"] == "text \ud800"
    assert back.printed == "half \ud800" and back.problem is None
    failed = call(raises(ValueError("no")))
    assert Observation.from_tree(unpack(pack(failed.tree()))).problem == failed.problem


@pytest.mark.parametrize(
    "tree", [{}, {"values": 3, "problem": None, "printed": ""}, {"values": {}, "problem": 1}]
)
def test_what_is_no_observation_is_refused(tree):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Observation.from_tree(tree)
