"""check(), as a learner meets it: in a terminal, in a notebook, under nbgrader, with every usual slip."""

import math
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from torch import nn

import transformer_lab
from grader import grade
from grader.exercises import by_id
from tests.patience import HANG
from transformer_lab import check
from transformer_lab.checking import run_check
from transformer_lab.checking.judging.compare import Difference
from transformer_lab.checking.judging.report import COLOURS, Report, RowResult
from transformer_lab.checking.stored.recorded import index

ROOT = Path(__file__).resolve().parent.parent


# ---- answers as learners write them -----------------------------------------------------------------


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        even = torch.arange(0, d_model, 2)
        angles = torch.arange(max_len)[:, None] / 10000 ** (even / d_model)
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(angles)
        pe[:, 1::2] = torch.cos(angles)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)].to(x.dtype)


class IForTwoI(PositionalEncoding):
    def __init__(self, d_model, max_len=5000):
        nn.Module.__init__(self)
        pe = torch.zeros(max_len, d_model)
        for position in range(min(max_len, 64)):
            for i in range(d_model // 2):
                pe[position, 2 * i] = math.sin(position / 10000 ** (i / d_model))
                pe[position, 2 * i + 1] = math.cos(position / 10000 ** (i / d_model))
        self.register_buffer("pe", pe)


class Trainable(PositionalEncoding):
    def __init__(self, d_model, max_len=5000):
        super().__init__(d_model, max_len)
        table = self.pe
        del self.pe
        self.pe = nn.Parameter(table)


class SliceByBatch(PositionalEncoding):
    def forward(self, x):
        batch = x.shape[0]
        return x + self.pe[:batch]


class NoRoot(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        return self.emb(ids)


def position_similarity(d_model, offsets):
    theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.cos(offsets[:, None] * theta).sum(dim=-1)


def similarity(change):
    """A right position_similarity whose result is changed before it is returned."""

    def function(d_model, offsets):
        return change(position_similarity(d_model, offsets))

    return function


def unfinished_similarity(d_model, offsets):
    raise NotImplementedError("TODO 2.5")


# ---- told exactly that ------------------------------------------------------------------------------

TOLD = {
    "√d left out": ("1.1", NoRoot, "no √d", ["√d_model is missing"]),
    "i for 2i": ("2.1", IForTwoI, "i for 2i", ["i/d where 2i/d is meant", "0/8, 2/8, 4/8, 6/8"]),
    "a trainable code": ("2.1", Trainable, "trainable", ["nn.Parameter", "register_buffer"]),
    "slice by batch": ("2.1", SliceByBatch, "slice by batch", ["x.size(0)", "batch size", "x.size(1)"]),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_usual_mistake_is_told_exactly(name, capsys):
    exercise, symbol, diagnosis, words = TOLD[name]
    report = run_check(exercise, symbol)
    assert report.diagnosis[0] == diagnosis and not report.passed
    check(exercise, symbol)
    shown = capsys.readouterr().out
    assert "What this looks like:" in shown
    for word in words:
        assert word in shown


class Misnamed(PositionalEncoding):
    def __init__(self, d_model, max_len=5000):
        super().__init__(d_model, max_len)
        table = self.pe
        del self.pe
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)].to(x.dtype)


class MisnamedLayer(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.position = nn.Embedding(max_len, d_model)

    def forward(self, x):
        return x + self.position(torch.arange(x.size(1)))


class NoSuper(nn.Module):
    def __init__(self, d_model, max_len=5000):
        self.register_buffer("pe", torch.zeros(max_len, d_model))


class NoForward(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.register_buffer("pe", PositionalEncoding(d_model, max_len).pe)

    def foward(self, x):
        return x + self.pe[: x.size(1)]


class InPlace(PositionalEncoding):
    def forward(self, x):
        x += self.pe[: x.size(1)]
        return x


class Float32Always(PositionalEncoding):
    def forward(self, x):
        return (x + self.pe[: x.size(1)]).float()


class NoModule:
    def __init__(self, d_model, max_len=5000):
        pass


class Unreadable(Exception):
    def __str__(self):
        raise ValueError


def wrong_order(offsets, d_model):
    return position_similarity(d_model, offsets)


def raises(error):
    def function(d_model, offsets):
        raise error

    return function


SLIPS = {
    "a misnamed attribute": ("2.1", Misnamed, ["needs the attribute pe, which yours does not have"]),
    "a misnamed layer": (
        "2.7",
        MisnamedLayer,
        ["needs pos.weight", "has position.weight", "Rename the attribute"],
    ),
    "parameters in another order": (
        "2.5",
        wrong_order,
        ["order (offsets, d_model); the task says (d_model, offsets)"],
    ),
    "numpy": ("2.5", similarity(lambda y: y.numpy()), ["numpy array; return a torch.Tensor"]),
    "a wrong dtype": ("2.5", similarity(lambda y: y.double()), ["dtype float64; expected float32"]),
    "a dtype forced on float64": ("2.1", Float32Always, ["dtype float32; expected float64"]),
    "NaN": ("2.5", similarity(lambda y: y / 0 * 0), ["holds NaN in"]),
    "a modified input": ("2.1", InPlace, ["changed its input", "x += … changes the caller's tensor"]),
    "an object for the class": (
        "2.1",
        PositionalEncoding(8),
        ["Pass the class itself: PositionalEncoding, without"],
    ),
    "a class for the function": (
        "2.5",
        PositionalEncoding,
        ["the class PositionalEncoding; the function position_"],
    ),
    "a function for the class": (
        "2.1",
        position_similarity,
        ["a function; the class PositionalEncoding itself"],
    ),
    "a result for the function": (
        "2.5",
        torch.ones(3),
        ["type Tensor; the function position_similarity itself"],
    ),
    "a class that is no module": ("2.1", NoModule, ["NoModule does not inherit from nn.Module"]),
    "a string": ("2.5", "position_similarity", ["a string (leave the quotes away)"]),
    "nothing": ("2.5", None, ["nothing (None); the function position_similarity itself was expected"]),
    "an exception": ("2.5", raises(IndexError("gone")), ["raised IndexError: gone at line", "`raise error`"]),
    "SystemExit": ("2.5", raises(SystemExit(1)), ["raised SystemExit: 1"]),
    "an exception without a text": ("2.5", raises(Unreadable()), ["Unreadable: (its text could not be read"]),
    "no super().__init__()": ("2.1", NoSuper, ["Call super().__init__() first in __init__"]),
    "no forward": ("2.1", NoForward, ["no method named forward. Check its spelling and its indentation"]),
    "no return": ("2.5", similarity(lambda y: None), ["the output is None. Is a return statement missing?"]),
    "one result too many": (
        "2.5",
        similarity(lambda y: (y, y)),
        ["one value was expected, and a tuple came back"],
    ),
    "a wrong shape": ("2.5", similarity(lambda y: y[:, None]), ["has shape [6, 1]; expected [6]"]),
    "a list": ("2.5", similarity(lambda y: y.tolist()), ["is a list; an ordinary torch.Tensor"]),
    "a tensor elsewhere": ("2.5", similarity(lambda y: y.to("meta")), ["on meta; one on the CPU"]),
    "a sparse tensor": ("2.6", lambda k, d_model: torch.eye(d_model).to_sparse(), ["a sparse tensor"]),
}


@pytest.mark.parametrize("name", SLIPS)
def test_each_slip_has_its_own_sentence_and_check_never_raises(name, capsys):
    exercise, symbol, words = SLIPS[name]
    check(exercise, symbol)
    shown, errors = capsys.readouterr()
    assert "✗" in shown and not errors
    for word in words:
        assert word in shown


def test_no_two_slips_share_a_sentence():
    sentences = {}
    for name, (exercise, symbol, _) in SLIPS.items():
        report = run_check(exercise, symbol)
        first = next(row.sentence for row in report.rows if row.status == "failed")
        assert first not in sentences, f"{name} and {sentences[first]} read alike"
        sentences[first] = name


# ---- where it is shown ------------------------------------------------------------------------------


def test_terminal_shows_rows(capsys):
    check("2.1", PositionalEncoding)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2.1 PositionalEncoding: all 8 rows pass"
    assert len(lines) == 9 and all(line.startswith("  ✓ ") for line in lines[1:])


def test_stub_shows_one_line(capsys):
    check("2.5", unfinished_similarity)
    assert capsys.readouterr().out == "2.5 position_similarity: nothing to judge yet. Next: TODO 2.5\n"


def test_half_done_class_passes_the_rows_it_can(capsys):
    class Half(PositionalEncoding):
        def forward(self, x):
            raise NotImplementedError("TODO 2.4")

    check("2.1", Half)
    shown = capsys.readouterr().out
    assert "2.1 PositionalEncoding: 3 of 8 rows pass" in shown
    assert "○ forward(x) is x + pe[:n]\n      Stops at TODO 2.4, which is still open." in shown


@pytest.mark.parametrize("todo", ["2.1", "2.2", "2.3", "2.4", 2.1])
def test_any_todo_of_an_exercise_checks_the_exercise(todo, capsys):
    check(todo, PositionalEncoding)
    assert capsys.readouterr().out.startswith("2.1 PositionalEncoding: all 8 rows pass")


@pytest.mark.parametrize("todo", ["2.99", "", None, "PositionalEncoding"])
def test_unknown_number_is_one_clear_line(todo, capsys):
    check(todo, PositionalEncoding)
    shown = capsys.readouterr().out
    assert shown.startswith(f"There is no TODO '{todo}'. The numbers are:") and shown.count("\n") == 1
    assert "2.1, 2.2" in shown


def test_a_learners_own_output_is_shown_below_a_failure_only(capsys):
    def talks(d_model, offsets):
        print("theta is", d_model)
        return offsets

    check("2.5", talks)
    assert "Your code printed: theta is" in capsys.readouterr().out
    check("2.5", similarity(lambda y: print("right") or y))
    assert "Your code printed" not in capsys.readouterr().out


def test_warnings_and_stderr_do_no_harm(capfd):
    def noisy(d_model, offsets):
        warnings.warn("careful", UserWarning, stacklevel=1)
        print("100%|████| 3/3", file=sys.stderr)
        return position_similarity(d_model, offsets)

    check("2.5", noisy)
    shown, errors = capfd.readouterr()
    assert "all 2 rows pass" in shown and errors == ""


def test_global_state_is_restored(capsys):
    def changes(d_model, offsets):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(7)
        return offsets

    torch.manual_seed(1)
    wanted = torch.rand(2)
    torch.manual_seed(1)
    check("2.5", changes)
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.equal(torch.rand(2), wanted)


def test_left_on_no_grad_and_float64_do_not_spoil_a_right_answer():
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert run_check("2.1", PositionalEncoding).passed
    finally:
        torch.set_default_dtype(torch.float32)


def test_interrupt_reaches_the_learner():
    with pytest.raises(KeyboardInterrupt):
        check("2.5", raises(KeyboardInterrupt()))


@pytest.fixture
def notebook():
    """A live IPython, as in a kernel."""
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def test_notebook_gets_html_and_the_same_as_plain_text(notebook):
    with capture_output() as captured:
        check("2.1", SliceByBatch)
    (output,) = captured.outputs
    assert output.data["text/plain"] == str(run_check("2.1", SliceByBatch)) and captured.stdout == ""
    html = output.data["text/html"]
    assert html.count("✓") == 3 and html.count("✗") == 1 and COLOURS["failed"] in html
    assert "the batch size B" in html


def test_notebook_names_the_line_of_the_learners_cell(notebook):
    with capture_output() as captured:
        notebook.run_cell(
            "from transformer_lab import check\n\ndef position_similarity(d_model, offsets):\n"
            "    theta = 1\n    return offsets @ unknown_name\n\ncheck('2.5', position_similarity)"
        ).raise_error()
    text = captured.outputs[0].data["text/plain"]
    assert "NameError: name 'unknown_name' is not defined at line 5 of its cell" in text
    assert "`return offsets @ unknown_name`" in text


def test_learners_text_is_escaped_in_html():
    report = run_check("2.5", raises(ValueError("<script>alert('x')</script> & <b>")))
    html = report._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "&amp; &lt;b&gt;" in html

    def prints(d_model, offsets):
        print("<img src=x onerror=alert(1)>")

    assert "<img" not in run_check("2.5", prints)._repr_html_()
    hostile = Difference("value", "<i>")
    rows = [RowResult("<a>", "<u>", 1.0, "failed", hostile)]
    whole = Report("<1>", "<s>", 1, rows, ("<m>", "<em>"), "<pre></pre>", "<h1>")._repr_html_()
    for tag in ("<i>", "<u>", "<1>", "<s>", "<em>", "<h1>", "<pre></pre>"):
        assert tag not in whole


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", ["#ffffff", "#111111"])
@pytest.mark.parametrize("status", COLOURS)
def test_colours_are_readable_in_light_and_dark_themes(status, background):
    assert contrast(COLOURS[status], background) >= 3


def test_contrast_is_computed_right():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


# ---- under nbgrader ---------------------------------------------------------------------------------


def test_validate_raises_with_the_rows_unless_all_pass(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    check("2.5", position_similarity)
    for symbol in (unfinished_similarity, similarity(lambda y: y + 1)):
        with pytest.raises(AssertionError, match=r"2\.5 position_similarity: ") as caught:
            check("2.5", symbol)
        assert str(caught.value) == str(run_check("2.5", symbol))


def test_autograde_is_silent_and_runs_nothing(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    check("2.5", raises(KeyboardInterrupt()))
    check("2.99", None)
    assert capsys.readouterr() == ("", "")


# ---- the package ------------------------------------------------------------------------------------


def test_a_check_takes_less_than_a_tenth_of_a_second():
    for exercise, symbol in (
        ("2.1", PositionalEncoding),
        ("2.1", SliceByBatch),
        ("2.5", position_similarity),
    ):
        times = []
        for _ in range(7):
            started = time.perf_counter()
            run_check(exercise, symbol)
            times.append(time.perf_counter() - started)
        assert min(times) < 0.1, (
            f"{exercise} took {min(times):.3f} s"
        )  # the best, since the machine is shared


def test_importing_the_package_does_not_import_torch():
    code = "import sys, transformer_lab; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "False\n", done.stderr


def test_check_works_from_a_script_far_from_the_repository(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("from transformer_lab import check\ncheck('2.5', lambda d_model, offsets: offsets)\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NBGRADER", "TRANSFORMER_LAB"))}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0 and "dtype int64; expected float32" in done.stdout and done.stderr == ""


def test_unknown_public_name_lists_what_there_is():
    with pytest.raises(AttributeError, match="no 'chekc'; it offers check, hint"):
        transformer_lab.chekc  # noqa: B018


def test_grade_returns_a_plain_float_and_partial_marks(capsys):
    def only_far(d_model, offsets):
        out = position_similarity(d_model, offsets)
        return torch.where(offsets == 0, torch.zeros_like(out), out)

    full, partial, none = (grade("2.5", symbol) for symbol in (position_similarity, only_far, np.zeros))
    assert (full, partial, none) == (3.0, 2.0, 0.0) and {type(full), type(partial), type(none)} == {float}
    assert "all 2 rows pass" in capsys.readouterr().out


def test_index_names_every_todo():
    assert index() == {todo: exercise.id for exercise in by_id().values() for todo in exercise.todos}


def test_the_finished_part_of_the_course_earns_nothing():
    from transformer_lab import parts

    class Inherits(parts.PositionalEncoding):
        pass

    for symbol in (parts.PositionalEncoding, Inherits):
        report = run_check("2.1", symbol)
        assert report.score == 0
        assert "finished PositionalEncoding" in str(report)


NO_COMPILER = """
import sys
from grader.authoring.build import ROOT, chapters
from grader.exercises import of_chapter
from grader.authoring.selftest import namespace
from transformer_lab.checking import run_check

for chapter in chapters():
    if chapter != "09_translation":  # its exercise is about an optimizer, and torch's bring the compiler
        names = namespace(ROOT / "solutions" / chapter / f"{chapter}.py")
        for exercise in of_chapter(chapter):
            assert run_check(exercise.id, names[exercise.symbol]).passed, exercise.id
            assert "torch._dynamo" not in sys.modules, exercise.id
"""


def test_no_check_makes_a_learner_wait_for_torchs_compiler_to_be_imported():
    done = subprocess.run(
        [sys.executable, "-c", NO_COMPILER], cwd=ROOT, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr[-1000:]
