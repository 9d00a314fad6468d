"""A lesson that cannot be built is refused, and every fault is named with its file and line."""

import pytest

from grader.authoring.lesson import (
    BEGIN,
    END,
    LessonError,
    check_lesson,
    read_lesson,
    solution_lines,
    without_solutions,
)
from tests.small import DOUBLE, LESSON, changed, exercise, line_of, write_lesson

TODO_LINE = line_of(LESSON, "def double")
TEST_LINE = line_of(LESSON, 'check("97.1"')
OTHER = LESSON[LESSON.index('# %% todo="97.1"') : LESSON.index('# %% test="97.1"')]
FIRST_BEGIN, SECOND_BEGIN = (line_of(LESSON, BEGIN, n) for n in (0, 1))
FIRST_SOLUTION = f"    {BEGIN}\n    the_number_to_multiply_by = 2\n    {END}\n"


def faults(tmp_path, text: str, exercises=(DOUBLE,)) -> list[str]:
    """The faults of a lesson, without the path in front, which every one of them must have."""
    path = write_lesson(tmp_path, text)
    with pytest.raises(LessonError) as caught:
        check_lesson(path, read_lesson(path), exercises)
    lines = str(caught.value).split("\n")
    assert lines[0].startswith(f"{path}:")
    return [line.removeprefix(f"{path}:") for line in lines]


def test_the_small_lesson_itself_is_well_formed(tmp_path):
    path = write_lesson(tmp_path)
    check_lesson(path, read_lesson(path), (DOUBLE,))


def test_cells_know_where_they_stand(tmp_path):
    cells = read_lesson(write_lesson(tmp_path))
    assert [cell.kind for cell in cells] == ["markdown", "code", "code", "code"]
    assert cells[2].line == TODO_LINE and cells[2].todo == "97.1" and cells[3].test == "97.1"
    lines = LESSON.splitlines()
    for cell in cells[1:]:
        for number, text in cell.lines():
            assert lines[number - 1] == text


# (what is wrong: the lesson, the line that must be named, words that must stand there)
WRONG = {
    "unclosed marker": (
        changed(f"    {END}\n\n", "\n"),
        SECOND_BEGIN,
        "'### BEGIN SOLUTION' is never closed",
    ),
    "nested marker": (
        changed("    the_number_to_multiply_by = 2", f"    {BEGIN}"),
        FIRST_BEGIN + 1,
        f"nested marker: 'SOLUTION' opens inside the one opened at line {FIRST_BEGIN}",
    ),
    "stray end": (
        changed("def double(x):", f"def double(x):\n    {END}"),
        TODO_LINE + 1,
        "'### END SOLUTION' closes nothing",
    ),
    "closed by the other kind": (
        changed(f"2\n    {END}", "2\n    ### END HIDDEN TESTS"),
        FIRST_BEGIN + 2,
        "'### END HIDDEN TESTS' closes nothing",
    ),
    "marker after code": (
        changed(f"    {BEGIN}\n    the_number", f"    y = 1  {BEGIN}\n    the_number"),
        FIRST_BEGIN,
        "a marker stands alone on its line",
    ),
    "marker with another sign": (
        changed(f"    {BEGIN}\n    the_number", "    # BEGIN SOLUTION\n    the_number"),
        FIRST_BEGIN,
        "a marker stands alone on its line as '### BEGIN SOLUTION'",
    ),
    "marker in a string": (
        changed("import torch\n", f'text = """\n{BEGIN} of mine\n"""\n'),
        line_of(LESSON, "import torch") + 1,
        "a marker stands alone",
    ),
    "marker in prose": (
        changed("# # A small lesson", "# Between BEGIN SOLUTION and the end"),
        2,
        "a solution outside a TODO cell",
    ),
    "solution in a plain cell": (
        changed("import torch\n", f"{BEGIN}\nimport torch\n{END}\n"),
        line_of(LESSON, "import torch"),
        'a solution outside a TODO cell; give the cell todo="…"',
    ),
    "hidden tests in a plain cell": (
        changed("import torch\n", "### BEGIN HIDDEN TESTS\nimport torch\n### END HIDDEN TESTS\n"),
        line_of(LESSON, "import torch"),
        "hidden tests outside a test cell",
    ),
    "TODO cell without markers": (
        "\n".join(line for line in LESSON.split("\n") if line.strip() not in (BEGIN, END)),
        TODO_LINE,
        "TODO cell 97.1 has no solution markers",
    ),
    "a TODO without its solution": (
        changed(FIRST_SOLUTION, ""),
        TODO_LINE,
        "TODO 97.1 of exercise 97.1 has no solution in this cell",
    ),
    "a solution without its TODO": (
        changed("    # TODO 97.1: the number to multiply by\n", ""),
        FIRST_BEGIN - 1,
        "a solution needs a comment '# TODO <number>: …' above it",
    ),
    "a TODO of no exercise": (
        changed("# TODO 97.2:", "# TODO 97.3:"),
        line_of(LESSON, "# TODO 97.2"),
        "TODO 97.3 is not one of exercise 97.1 (97.1, 97.2)",
    ),
    "duplicate todo": (
        changed('# %% test="97.1" points=4', OTHER + '\n# %% test="97.1" points=4'),
        TEST_LINE,
        f'todo="97.1" is used twice (first at line {TODO_LINE})',
    ),
    "duplicate test": (
        LESSON + "\n" + LESSON[LESSON.index('# %% test="97.1"') :],
        len(LESSON.splitlines()) + 3,
        f'test="97.1" is used twice (first at line {TEST_LINE})',
    ),
    "empty id": (
        changed('todo="97.1"', 'todo=""'),
        TODO_LINE,
        'todo="" needs the number of an exercise',
    ),
    "id without quotes": (
        changed('todo="97.1"', "todo=97.1"),
        TODO_LINE,
        'todo=97.1 needs quotes: todo="97.1"',
    ),
    "test id without quotes": (
        changed('test="97.1"', "test=97.1"),
        TEST_LINE,
        'test=97.1 needs quotes: test="97.1"',
    ),
    "an id of no exercise": (
        changed('todo="97.1"', 'todo="97.9"'),
        TODO_LINE,
        "grader/exercises has no exercise 97.9 in this chapter",
    ),
    "an exercise without a TODO cell": (
        changed(OTHER, ""),
        1,
        'exercise 97.1 has no cell with todo="97.1" in this lesson',
    ),
    "an exercise without a test cell": (
        LESSON[: LESSON.index('# %% test="97.1"')],
        TODO_LINE,
        'exercise 97.1 has no cell with test="97.1" in this lesson',
    ),
    "other points": (changed("points=4", "points=5"), TEST_LINE, "points=5, but exercise 97.1 is worth 4"),
    "no points": (changed(" points=4", ""), TEST_LINE, "points=None, but exercise 97.1 is worth 4"),
    "a test cell that grades another symbol": (
        changed('grade("97.1", double)', 'grade("97.1", triple)'),
        TEST_LINE,
        "the test cell of 97.1 must read:",
    ),
    "a test cell that grades another exercise": (
        changed('grade("97.1", double)', 'grade("97.2", double)'),
        TEST_LINE,
        "the test cell of 97.1 must read:",
    ),
    "a test cell whose grade is visible": (
        changed("### BEGIN HIDDEN TESTS\n", ""),
        TEST_LINE,
        "the test cell of 97.1 must read:",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_fault_is_named_with_its_line(tmp_path, name):
    text, line, words = WRONG[name]
    found = faults(tmp_path, text)
    where = next((int(fault.split(":")[0]) for fault in found if words in fault), None)
    assert where is not None, found
    # A fault that is about a cell that is not there is named at the lesson's last cell.
    assert where == line or "has no cell with" in words, found


def test_text_of_the_wanted_test_cell_is_shown(tmp_path):
    shown = "\n".join(faults(tmp_path, changed('check("97.1", double)', "check(double)")))
    assert 'check("97.1", double)\n### BEGIN HIDDEN TESTS\nfrom grader import grade' in shown


def test_all_faults_are_listed_at_once_in_order(tmp_path):
    text = changed("points=4", "points=5", changed(FIRST_SOLUTION, ""))
    text = changed('check("97.1", double)', 'check("97.1")', text)
    found = [fault for fault in faults(tmp_path, text) if fault[0].isdigit()]
    numbers = [int(fault.split(":")[0]) for fault in found]
    assert len(found) == 3 and numbers == sorted(numbers)


def test_every_exercise_of_the_chapter_is_asked_for(tmp_path):
    second = exercise(id="97.5", todos=("97.5",))
    found = faults(tmp_path, LESSON, (DOUBLE, second))
    assert sum('"97.5"' in fault for fault in found) == 2  # neither a TODO cell nor a test cell


@pytest.mark.parametrize("before", ["import torch\n", '"""A docstring."""\n\n', "# a comment\n"])
def test_text_before_the_first_cell_is_refused(tmp_path, before):
    path = write_lesson(tmp_path, before + LESSON)
    with pytest.raises(LessonError, match="no text before the first") as caught:
        read_lesson(path)
    assert str(caught.value).startswith(f"{path}:")


def test_file_without_cells_is_refused(tmp_path):
    with pytest.raises(LessonError, match=r"97_small\.py:1: every cell must begin"):
        read_lesson(write_lesson(tmp_path, "print('hello')\n"))


def test_empty_lines_that_a_formatter_adds_to_a_test_cell_do_not_matter(tmp_path):
    path = write_lesson(tmp_path, changed("import grade\ngrade", "import grade\n\ngrade"))
    check_lesson(path, read_lesson(path), (DOUBLE,))


# ---- stubs ------------------------------------------------------------------------------------------


def test_stub_stands_where_the_solution_stood_and_names_its_todo(tmp_path):
    cell = read_lesson(write_lesson(tmp_path))[2]
    assert without_solutions(cell.source) == (
        "def double(x):\n"
        "    # TODO 97.1: the number to multiply by\n"
        '    raise NotImplementedError("TODO 97.1")\n'
        "    # TODO 97.2: the product\n"
        '    raise NotImplementedError("TODO 97.2")'
    )


def test_a_todo_comment_inside_a_solution_does_not_rename_the_stub():
    source = f"def f():\n    # TODO 97.1: x\n    {BEGIN}\n    # TODO 97.2: y\n    return 1\n    {END}"
    assert 'NotImplementedError("TODO 97.1")' in without_solutions(source)
    assert "97.2" not in without_solutions(source)


def test_solution_lines_come_with_their_line_numbers(tmp_path):
    found = list(solution_lines(read_lesson(write_lesson(tmp_path))))
    assert found == [
        (line_of(LESSON, "the_number_to_multiply_by = 2"), "the_number_to_multiply_by = 2"),
        (line_of(LESSON, "return the_number"), "return the_number_to_multiply_by * x"),
    ]
