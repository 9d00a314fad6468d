"""Small helpers of a notebook's cells."""

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.patience import HANG
from transformer_lab import unfinished
from transformer_lab.notebook import in_notebook


def test_unfinished_todo_is_one_sentence(capsys):
    with unfinished():
        raise NotImplementedError("TODO 2.4")
    assert capsys.readouterr().out == "Finish TODO 2.4 first, then run this cell again.\n"


def test_finished_code_says_nothing_of_its_own(capsys):
    with unfinished():
        print("done")
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError(),
        NotImplementedError("later"),
        NotImplementedError("see TODO 2.4"),
        ValueError("TODO 2.4"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_every_other_error_is_shown_as_it_is(error):
    with pytest.raises(type(error)), unfinished():
        raise error


def test_names_defined_before_the_stub_remain():
    with unfinished():
        first = 1
        raise NotImplementedError("TODO 1.1")
    assert first == 1


def test_a_notebook_is_known_by_its_live_ipython():
    assert not in_notebook()
    InteractiveShell.instance()
    try:
        assert in_notebook()
    finally:
        InteractiveShell.clear_instance()


def test_a_plain_script_does_not_import_ipython_to_be_asked():
    code = (
        "import sys\n"
        "from transformer_lab.notebook import in_notebook\n"
        "print(in_notebook(), 'IPython' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "False False\n", done.stderr
