"""Files and folders that are not what was handed out. Right answers get their marks all the same."""

from __future__ import annotations

import io
import json
import sys
import zipfile

import nbformat

from tests.hostile.kit import CHAPTER, EXERCISES, NOTHING, ROOT, Case, case, data, notebook, right_answers

NAME = f"{CHAPTER}.ipynb"
OTHER = "03_attention"


def _tests(book):
    return [cell for cell in book.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def _answers(book):
    return [cell for cell in book.cells if cell.metadata.get("nbgrader", {}).get("solution")]


def _edited(change):
    book = notebook()
    change(book)
    return book


def _delete_tests(book):
    book.cells = [cell for cell in book.cells if cell not in _tests(book)]


def _duplicate(book):
    book.cells += [nbformat.from_dict(dict(cell)) for cell in _tests(book) + _answers(book)]


def _stub_kept_above(book):
    """The learner copied each stub before working on it, metadata and all."""
    stubs = {cell.metadata.nbgrader.grade_id: cell for cell in _answers(notebook({}))}
    book.cells = [
        c
        for cell in book.cells
        for c in ([stubs[cell.metadata.nbgrader.grade_id]] if cell in _answers(book) else []) + [cell]
    ]


def _put_below_check(change):
    """The stub of 2.5 is left as it was; the answer stands elsewhere."""

    def edit(book):
        stub = next(c for c in _answers(book) if c.metadata.nbgrader.grade_id == "todo-2-5")
        check = next(c for c in _tests(book) if c.metadata.nbgrader.grade_id == "test-2-5")
        answer, stub.source = stub.source, _stub("todo-2-5")
        change(book, check, answer)

    return edit


def _stub(name):
    return next(c.source for c in _answers(notebook({})) if c.metadata.nbgrader.grade_id == name)


def _insert_below(book, check, answer):
    book.cells.insert(book.cells.index(check) + 1, nbformat.v4.new_code_cell(answer))


def _write_into_check(_book, check, answer):
    check.source = f"{answer}\n\n{check.source}"


def _append(book, _check, answer):
    book.cells.append(nbformat.v4.new_code_cell(answer))


def _reverse_tests(book):
    sources = [(cell.source, cell.metadata) for cell in _tests(book)]
    for cell, (source, metadata) in zip(_tests(book), reversed(sources), strict=True):
        cell.source, cell.metadata = source, metadata


def _metadata(**new):
    def change(book):
        for cell in _tests(book) + _answers(book):
            cell.metadata.nbgrader.update(new)

    return change


def _as_markdown(book):
    for cell in _tests(book) + _answers(book):
        cell.cell_type = "markdown"
        cell.pop("outputs", None), cell.pop("execution_count", None)


def _strip(book):
    for cell in book.cells:
        cell.metadata = nbformat.from_dict({})
    book.metadata = nbformat.from_dict({})


def _strip_ids_too(book):
    _strip(book)
    for number, cell in enumerate(book.cells):
        cell.id = f"x{number}"


def _same_ids(book):
    for cell in book.cells:
        cell.id = "same"


def _vs_code(book):
    for cell in book.cells:
        cell.metadata["vscode"] = {"languageId": "python"}
    book.metadata["language_info"] = {
        "name": "python",
        "version": "3.14",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
    book.metadata.pop("kernelspec", None)


def _colab(book):
    """Colab keeps cells' metadata, adds its own, and takes the format down to 4.0 without ids."""
    book.nbformat_minor = 0
    book.metadata["colab"] = {"provenance": [], "toc_visible": True}
    book.metadata["accelerator"] = "GPU"
    for cell in book.cells:
        cell.pop("id", None)
        cell.metadata["colab"] = {"base_uri": "https://localhost:8080/"}
        cell.metadata["outputId"] = "0f"


def _minor_2(book):
    book.nbformat_minor = 2
    for cell in book.cells:
        cell.pop("id", None)


def _version_3() -> bytes:
    cells = []
    for cell in notebook().cells:
        own = {"cell_type": cell.cell_type, "metadata": cell.metadata}
        text = cell.source.splitlines(keepends=True)
        own |= (
            {"input": text, "language": "python", "outputs": [], "collapsed": False}
            if cell.cell_type == "code"
            else {"source": text}
        )
        cells.append(own)
    return json.dumps(
        {
            "nbformat": 3,
            "nbformat_minor": 0,
            "metadata": {"name": ""},
            "worksheets": [{"cells": cells, "metadata": {}}],
        }
    ).encode()


def _zip(names: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _damaged(content: bytes, how: int) -> bytes:
    """A zip whose directory and headers are whole and whose data are not."""
    packed = bytearray(_zip({NAME: content}, how))
    with zipfile.ZipFile(io.BytesIO(bytes(packed))) as archive:
        member = archive.infolist()[0]
    start = 30 + len(NAME) + 20  # behind the header of the file and what says how it is packed
    packed[start : start + member.compress_size // 2] = b"\x55" * (member.compress_size // 2)
    return bytes(packed)


def _files() -> list[Case]:
    """Which of several files is the notebook, and files and folders that are none."""
    right, blank = data(notebook()), data(notebook({}))
    other = (ROOT / "course" / "en" / OTHER / f"{OTHER}.ipynb").read_bytes()
    apple = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(200)
    moodle = "Ann Smith_12345_assignsubmission_file_"
    how = {"deflate": zipfile.ZIP_DEFLATED, "bz2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}
    odd_times = {"first-day": b"0001-01-01T00:00:00+23:00", "zone": b"2026-03-01 12:00:00 +99:99"}
    checkpoint = f".ipynb_checkpoints/{CHAPTER}-checkpoint.ipynb"
    macos = {f"__MACOSX/._{NAME}": apple, "__MACOSX/._homework.ipynb": apple, "homework.ipynb": right}
    beside = {"a.zip": _damaged(right, how["lzma"]), "b.zip": _zip({NAME: right})}
    zips = {f"damaged-{name}": {"a.zip": _damaged(right, kind)} for name, kind in how.items()}
    return [
        *(Case(f"zip-{name}", files, NOTHING, note="read out of the zip") for name, files in zips.items()),
        Case("zip-damaged-beside", beside),
        Case(
            "zip-two", {"a.zip": _zip({f"a/{NAME}": blank, "b/mine.ipynb": right})}, note="b/mine.ipynb was"
        ),
        Case("zip-macos", {"a.zip": _zip(macos)}, note="is named homework.ipynb"),
        Case("zip-checkpoint", {"a.zip": _zip({checkpoint: blank, "homework.ipynb": right})}),
        Case("folder-as-notebook", {f"{NAME}/x.txt": b"x"}, NOTHING, note="is a folder"),
        Case("folder-as-timestamp", {NAME: right}, folders=("timestamp.txt",), note="is a folder"),
        Case("folder-as-zip", {NAME: right}, folders=("a.zip",), note="is a folder"),
        Case("folder-moodle", {f"{moodle}/homework.ipynb": right}, note="is named"),
        Case("name-apple", {"._hw3.ipynb": apple, "hw3.ipynb": right}, note="is named hw3.ipynb"),
        Case("name-checkpoint", {"hw3-checkpoint.ipynb": blank, "hw3.ipynb": right}, note="named hw3.ipynb"),
        Case("name-only-checkpoint", {checkpoint: right}, note="a program made"),
        Case("name-other-chapter", {f"{OTHER}.ipynb": other, "zz.ipynb": right}, note="zz.ipynb was graded"),
        Case("name-blank-first", {NAME: blank, "done.ipynb": right}, note="done.ipynb was graded"),
        Case("name-txt", {f"{NAME}.txt": right}, note="is named"),
        Case("name-json", {f"{NAME}.json": right}, note="is named"),
        *(
            Case(f"timestamp-{name}", {NAME: right, "timestamp.txt": text}, note="timestamp")
            for name, text in odd_times.items()
        ),
    ]


def _large() -> list[Case]:
    """What is too much to read, and what only looks so."""
    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * (70 << 20)}}
    drawn = notebook()
    next(cell for cell in drawn.cells if cell.cell_type == "code").outputs = [nbformat.from_dict(picture)]
    braces = notebook(first="f'" + "{a!r:{b}}" * 100_000 + "'")  # Python 3.11 parses it in a minute
    _strip_ids_too(braces)  # so that answers are looked for in every cell
    return [
        case("large-outputs-first", drawn),
        case(
            "large-empty-cells",
            b'{"cells": [' + b"{}," * (8 << 20 >> 2) + b"{}]}",
            NOTHING,
            note="5000 cells",
        ),
        case("large-braces", braces, NOTHING if sys.version_info < (3, 12) else {}),
    ]


def _edits() -> list[Case]:
    edits = {
        "tests-edited": (lambda b: [cell.update(source="1000") for cell in _tests(b)], "edited"),
        "tests-deleted": (_delete_tests, "missing"),
        "answer-below-check": (_put_below_check(_insert_below), "below its check"),
        "answer-in-check": (_put_below_check(_write_into_check), "below its check"),
        "answer-copied-to-end": (_put_below_check(_append), "below its check"),
        "tests-and-answers-duplicated": (_duplicate, "times"),
        "tests-reordered": (_reverse_tests, "order"),
        "cells-reversed": (lambda b: b.cells.reverse(), "order"),
        "stub-kept-above": (_stub_kept_above, "times"),
        "grade-false": (_metadata(grade=False), "grade"),
        "points-raised": (_metadata(points=1000), "points"),
        "points-odd": (_metadata(points="nan"), "points"),
        "unlocked": (_metadata(locked=False, schema_version=99), "locked"),
        "code-to-markdown": (_as_markdown, "text cell"),
        "metadata-stripped": (_strip, "lost its metadata"),
        "metadata-and-ids-stripped": (_strip_ids_too, "lost its metadata"),
        "duplicate-cell-ids": (_same_ids, ""),
        "vs-code": (_vs_code, ""),
        "colab": (_colab, ""),
        "nbformat-4.2": (_minor_2, ""),
        "unknown-kernel": (lambda b: b.metadata.update(kernelspec={"name": "rust", "display_name": "Rust",
        "language": "rust"}), ""), "attachments-and-odd-fields": (lambda b: b.update(cells=[*b.cells, 7, None,
        {"cell_type": 3}, {"source": {}}]), ""),
    }  # fmt: skip
    marks = {"cells-reversed": {}}
    return [
        case(f"book-{name}", _edited(change), marks.get(name), note=note)
        for name, (change, note) in edits.items()
    ]


def cases() -> list[Case]:
    right = data(notebook())
    half = right[: right.index(b'"test-2-6"')]  # the answers up to 2.6 are whole
    after = EXERCISES[EXERCISES.index("2.6") + 1 :]
    blank = data(notebook({}))
    lost_answer = _edited(
        lambda b: b.update(
            cells=[c for c in b.cells if c.metadata.get("nbgrader", {}).get("grade_id") != "todo-2-5"]
        )
    )
    broken = notebook(right_answers() | {"2.5": "def position_similarity(d_model, offsets:\n    return"})
    odd_ids = (
        "comma, name",
        'quote"name',
        "=cmd|'C calc'!A0",
        "two words",
        "名前-Ünïcode",
        "+plus",
        "-minus",
        "@at",
        "<b>bold",
    )
    return [
        *_edits(),
        *_files(),
        *_large(),
        case("book-answer-deleted", lost_answer, {"2.5": 0.0}, note="missing"),
        case("book-syntax-error", broken, {"2.5": 0.0}),
        case("book-nbformat-3", _version_3(), note="nbformat 3"),
        case("book-bom", b"\xef\xbb\xbf" + right),
        case("book-utf-16", right.decode().encode("utf-16"), note="UTF-16"),
        case("book-not-utf-8", right + b"\n\xff\xfe  ", note="UTF-8"),
        case("book-empty", b"", NOTHING, note="empty"),
        case("book-no-json", b"<html>not found</html>", NOTHING, note="not valid JSON"),
        case("book-a-list", b"[1, 2]", NOTHING, note="no notebook"),
        case("book-truncated", half, dict.fromkeys(after, 0.0), note="could be saved"),
        case("book-deeply-nested", b'{"cells": ' + b"[" * 100_000, NOTHING, note="not valid JSON"),
        case("book-surrogates", right.replace(b"Adds a", b"\\ud800 \\udfff Adds a", 1)),
        Case("name-with-1", {f"{CHAPTER} (1).ipynb": right}, note="is named"),
        Case("name-copy", {f"{CHAPTER}-Copy1.ipynb": right}, note="is named"),
        Case("name-other", {"homework.ipynb": right}, note="is named"),
        Case("name-extra", {NAME: right, "notes.ipynb": b"{}", f"{CHAPTER} (2).ipynb": blank}, note="3 note"),
        Case("name-nothing", {"essay.txt": b"hello"}, NOTHING, note="no notebook"),
        Case("name-beside", {NAME: right, "torch.py": b"raise SystemExit(3)", "sitecustomize.py": b"1/0"},
        note="Other files"), Case("link-to-file", {}, NOTHING, note="link", links={NAME: "/etc/passwd"}),
        Case("link-to-other", {}, NOTHING, note="link", links={NAME:
        f"../../control-right/{CHAPTER}/{NAME}"}), Case("zip-right", {"handin.zip": _zip({f"work/{NAME}":
        right})}, note="taken out of"), Case("zip-leaves", {"handin.zip":
        _zip({f"../../control-right/{CHAPTER}/{NAME}": right})}, NOTHING, note="leaves its folder"),
        Case("zip-broken", {"handin.zip": b"PK\x03\x04 broken"}, NOTHING, note="zip"), *(Case(name, {NAME:
        right}) for name in odd_ids), case("blank", notebook({}), NOTHING), Case("timestamp-odd", {NAME:
        right, "timestamp.txt": b"yesterday\n"}, note="timestamp"), case("wrong-all",
        notebook(dict.fromkeys(EXERCISES, "pass")), NOTHING),
    ]  # fmt: skip
