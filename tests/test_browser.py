"""What a learner sees: JupyterLab, started as they start it, in a real Chromium, worked by keyboard."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.browser import NotebookPage, find_chromium, running_chromium, running_lab
from tests.patience import HANG

ROOT = Path(__file__).resolve().parent.parent
WAVES = Path("course/en/02_positional_encoding/02_positional_encoding.ipynb")

pytestmark = [
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
    pytest.mark.timeout(HANG),
]

# The smallest lesson with a picture: a slider that changes an image and its text alternative.
TINY = '''
import anywidget, ipywidgets, traitlets
from IPython.display import display

class Picture(anywidget.AnyWidget):
    _esm = """
    export default { render({ model, el }) {
      const img = document.createElement("img");
      const draw = () => { img.alt = model.get("alt"); img.src = model.get("src"); };
      model.on("change:src", draw);
      draw();
      el.appendChild(img);
    } };
    """
    src = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)

slider = ipywidgets.IntSlider(description="width", min=1, max=9)
picture = Picture()

def show(change=None):
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' width='{slider.value}0' height='20'></svg>"
    with picture.hold_sync():
        picture.alt, picture.src = f"width {slider.value}", "data:image/svg+xml," + svg

slider.observe(show, "value")
show()
display(ipywidgets.VBox([slider, picture]))
'''


@pytest.fixture(scope="module")
def browser():
    with running_chromium() as chromium:
        yield chromium


def write_notebook(path: Path, *sources: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)


def press_right_in_the_first_picture(book: NotebookPage) -> tuple[tuple[str, str], tuple[str, str]]:
    """Focus the first slider, press the right arrow; (src, alt) of the picture beside it before and after."""
    slider = book.page.get_by_role("slider").first
    widget = book.page.locator(".jp-OutputArea-output").filter(has=slider).first
    picture = widget.locator("img").first
    slider.focus()
    before = picture.get_attribute("src"), picture.get_attribute("alt")
    book.page.keyboard.press("ArrowRight")
    book.page.wait_for_function(
        "([image, src]) => image.src !== src", arg=[picture.element_handle(), before[0]], timeout=HANG * 1000
    )
    return before, (picture.get_attribute("src"), picture.get_attribute("alt"))


@pytest.fixture(scope="module")
def tiny_lab(tmp_path_factory):
    """JupyterLab on a course of three chapters of a few lines."""
    root = tmp_path_factory.mktemp("tiny")
    complaint = "from IPython.display import Javascript\nJavascript(\"console.error('from the page')\")"
    write_notebook(root / "course/en/00_start/00_start.ipynb", TINY)
    write_notebook(root / "course/en/01_wrong/01_wrong.ipynb", complaint, "1 / 0", "'not reached'")
    write_notebook(root / "course/en/02_slow/02_slow.ipynb", "import time\ntime.sleep(600)")
    with running_lab(root, root) as lab:
        yield lab


def test_slider_changes_a_picture_and_its_text_alternative(browser, tiny_lab):
    book = NotebookPage(browser, tiny_lab, "00_start/00_start.ipynb")
    assert book.run_all() == 1
    before, after = press_right_in_the_first_picture(book)
    assert (before[1], after[1]) == ("width 1", "width 2")
    assert book.page.get_by_text("Jupyter news").count() == 0, "a newcomer is asked about news"
    assert book.errors + book.tracebacks() == []


def test_start_opens_the_first_chapter(browser, tiny_lab):
    page = browser.new_page()
    page.goto(f"{tiny_lab.address}/?token={tiny_lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=HANG * 1000)
    assert page.get_by_role("tab", name=re.compile("00_start.ipynb")).count() == 1


def test_errors_of_cells_and_of_the_page_are_seen(browser, tiny_lab):
    book = NotebookPage(browser, tiny_lab, "01_wrong/01_wrong.ipynb")
    book.run_all()
    assert "from the page" in "".join(book.errors)
    assert "ZeroDivisionError" in "".join(book.tracebacks())


def test_waits_have_an_end(browser, tiny_lab):
    book = NotebookPage(browser, tiny_lab, "02_slow/02_slow.ipynb")
    with pytest.raises(TimeoutError, match="all cells to run"):
        book.run_all(seconds=3)


def test_lab_that_cannot_start_says_why(tmp_path):
    write_notebook(tmp_path / "course/en/00_start/00_start.ipynb", "1 + 1")
    (tmp_path / "work").write_text("a file where the learner's copy should go")
    with pytest.raises(RuntimeError, match="Not a directory"), running_lab(tmp_path, tmp_path):
        pass


def test_photographs_reach_from_top_to_bottom(tmp_path):
    write_notebook(tmp_path / "look.ipynb", "print('top')", "print('line\\n' * 80)", "print('bottom')")
    command = [
        sys.executable,
        "-m",
        "tests.browser",
        tmp_path / "look.ipynb",
        tmp_path / "out",
        "--height=600",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 code cells ran" in done.stdout
    pictures = sorted((tmp_path / "out").glob("look-*.png"))
    assert 2 <= len(pictures) <= 8
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


@pytest.mark.skipif(not (ROOT / WAVES).exists(), reason=f"{WAVES} has not been built")
def test_waves_answer_to_the_keyboard_in_chapter_02(browser, tmp_path):
    """The learner's copy of 02 with PositionalEncoding solved: the waves move, and so do their words."""
    shutil.copytree(ROOT / "course" / "en", tmp_path / "course" / "en")
    solve(tmp_path / WAVES, ROOT / "solutions" / WAVES.relative_to("course/en"))
    with running_lab(tmp_path, tmp_path) as lab:
        book = NotebookPage(browser, lab, str(WAVES.relative_to("course/en")))
        book.run_all()
        before, after = press_right_in_the_first_picture(book)
        assert before[0] != after[0]
        assert before[1] and after[1] and before[1] != after[1]
        assert book.errors + book.tracebacks() == []


def solve(learner: Path, solution: Path) -> None:
    """Put the solution's answer cells into a learner's notebook, as a learner who solved it would have."""
    book, answers = nbformat.read(learner, as_version=4), nbformat.read(solution, as_version=4)
    solved = {cell.metadata.nbgrader.grade_id: cell.source for cell in answers.cells if is_answer(cell)}
    for cell in filter(is_answer, book.cells):
        cell.source = solved[cell.metadata.nbgrader.grade_id]
    nbformat.write(book, learner)


def is_answer(cell) -> bool:
    return cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution", False)
