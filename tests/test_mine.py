"""mine.load: a learner's own part when it passes, the finished one otherwise, and always a reason."""

import json
import os

import pytest
import torch

from transformer_lab import mine, parts
from transformer_lab.parts.notebook_slice import Cell, binds, pick, uses

SETUP = "import torch\nfrom torch import nn\nfrom transformer_lab import check, mine\n"
EMBEDDING = """
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        return self.emb(ids) * factor(self.emb.embedding_dim)
"""
HELPER = "def factor(d):\n    return d ** 0.5"


def cell(source, grade_id=None):
    metadata = {"nbgrader": {"grade_id": grade_id, "solution": True}} if grade_id else {}
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": []}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Write a learner's notebook of chapter 01 and stand in chapter 04's folder, as a kernel does."""
    (tmp_path / "04_multi_head").mkdir()
    monkeypatch.chdir(tmp_path / "04_multi_head")

    def write(*cells, text=None):
        path = tmp_path / "01_embedding" / "01_embedding.ipynb"
        path.parent.mkdir(exist_ok=True)
        tree = {"cells": [{"cell_type": "markdown", "source": "# 01"}, *cells], "metadata": {}}
        path.write_text(json.dumps(tree) if text is None else text)
        os.utime(path, ns=(0, next(_times)))  # a saved notebook has a new time
        return path

    return write


_times = iter(range(1, 10**6, 1000))


def found(name="TokenEmbedding"):
    result = mine.find(name)
    if not result.own:
        assert result.part is getattr(parts, name)
    return result


def test_own_part_with_a_helper_from_another_cell(work, capsys):
    work(cell(SETUP), cell(HELPER), cell(EMBEDDING, "todo-1-1"), cell("check('1.1', TokenEmbedding)"))
    part = mine.load("TokenEmbedding")
    assert part is not parts.TokenEmbedding
    assert part(5, 4)(torch.tensor([[1, 2]])).shape == (1, 2, 4)
    printed = capsys.readouterr().out
    assert printed.startswith("TokenEmbedding: yours, from 01_embedding (all ")
    assert printed.count("\n") == 1


def test_only_what_the_part_needs_is_run(work, tmp_path):
    mark = tmp_path / "ran"
    experiments = [
        f"open({str(mark)!r}, 'w').close()",
        "1 / 0",
        "x = 1 / 0",
        "def broken(:",
        "%matplotlib inline",
    ]
    work(
        cell(SETUP),
        *map(cell, experiments),
        cell(HELPER),
        cell(EMBEDDING, "todo-1-1"),
        cell("raise SystemExit"),
    )
    assert found().own
    assert not mark.exists()


def test_helper_below_the_answer_is_found_and_a_later_redefinition_is_not_taken(work):
    work(
        cell(SETUP),
        cell(EMBEDDING, "todo-1-1"),
        cell(HELPER),
        cell("class TokenEmbedding: pass  # broken on purpose"),
    )
    assert found().own


def test_blank_notebook(work):
    stub = EMBEDDING.replace(
        "self.emb = nn.Embedding(vocab_size, d_model)", 'raise NotImplementedError("TODO 1.1")'
    )
    work(cell(SETUP), cell(HELPER), cell(stub, "todo-1-1"))
    assert found().why == "the finished part, since TODO 1.1 in 01_embedding has not been started"


def test_wrong_part_says_how_many_rows(work):
    work(cell(SETUP), cell("def factor(d):\n    return d"), cell(EMBEDDING, "todo-1-1"))
    why = found().why
    assert "the finished part, since yours in 01_embedding passes " in why and " rows" in why


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "there is no readable notebook in 01_embedding"),
        ("{}", "there is no readable notebook in 01_embedding"),
        ('{"cells": 5}', "there is no readable notebook in 01_embedding"),
        ('{"cells": [{"cell_type": "code"}]}', "there is no readable notebook in 01_embedding"),
        ('{"cells": [{"cell_type": "code", "source": "", "metadata": 3}]}', "there is no readable notebook"),
        ("[]", "there is no readable notebook in 01_embedding"),
        ("", "there is no readable notebook in 01_embedding"),
    ],
)
def test_broken_file(work, text, says):
    work(text=text)
    assert says in found().why


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (
            [cell("class TokenEmbedding(:", "todo-1-1")],
            "code cell 1, line 1 is not valid Python in 01_embedding",
        ),
        (
            [cell(EMBEDDING, "todo-1-1")],
            "code cell 1 stops (NameError: name 'nn' is not defined) in 01_embedding",
        ),
        ([cell("import nowhere_at_all as nn"), cell(EMBEDDING, "todo-1-1")], "ModuleNotFoundError"),
        (
            [cell("class TokenEmbedding:\n    raise SystemExit(3)", "todo-1-1")],
            "code cell 1 stops (SystemExit: 3)",
        ),
        ([cell(SETUP)], "01_embedding does not define it"),
        ([cell("TokenEmbedding = None", "todo-1-1")], "01_embedding does not define it"),
        (
            [cell("from transformer_lab.parts import TokenEmbedding")],
            "01_embedding uses the finished one too",
        ),
        (
            [cell("from transformer_lab import mine"), cell("TokenEmbedding = mine.load('TokenEmbedding')")],
            "01_embedding uses the finished one too",
        ),
    ],
)
def test_broken_code(work, capsys, cells, says):
    work(*cells)
    assert says in found().why
    assert capsys.readouterr().out == ""


def test_no_notebook_and_an_instructors_one(work):
    says = "the finished part, since there is no notebook of yours for chapter 01"
    assert found().why == says
    work(cell(SETUP), cell(f"### BEGIN SOLUTION\n{EMBEDDING}", "todo-1-1"))
    assert found().why == says


def test_saving_again_is_noticed(work):
    work(cell(SETUP), cell("def factor(d):\n    return d"), cell(EMBEDDING, "todo-1-1"))
    assert not found().own
    work(cell(SETUP), cell(HELPER), cell(EMBEDDING, "todo-1-1"))
    assert found().own


def test_a_part_that_uses_a_part_of_an_earlier_chapter(work, tmp_path):
    work(cell(SETUP), cell(HELPER), cell(EMBEDDING, "todo-1-1"))
    second = tmp_path / "02_positional_encoding" / "02_positional_encoding.ipynb"
    second.parent.mkdir()
    source = (
        "TokenEmbedding = mine.load('TokenEmbedding')\n"
        "Base = nn.Module if TokenEmbedding.__module__.startswith('mine_') else None"
    )
    learned = (
        "class LearnedPositionalEncoding(Base):\n"
        "    def __init__(self, d_model, max_len):\n"
        "        super().__init__()\n"
        "        self.pos = nn.Embedding(max_len, d_model)\n"
        "    def forward(self, x):\n"
        "        if x.size(1) > self.pos.num_embeddings:\n"
        "            raise ValueError('too long')\n"
        "        return x + self.pos(torch.arange(x.size(1), device=x.device))\n"
    )
    cells = [cell(SETUP), cell(source), cell(learned, "todo-2-7")]
    second.write_text(json.dumps({"cells": cells}))
    assert found("LearnedPositionalEncoding").own


def test_global_state_is_put_back(work):
    disturbing = (
        "TokenEmbedding = [torch.manual_seed(1), torch.set_default_dtype(torch.float64), print('loud')]"
    )
    work(cell(SETUP), cell(disturbing, "todo-1-1"))
    before = torch.get_rng_state()
    found()
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() == torch.float32


def test_load_all_fits_the_parts_argument(work, capsys):
    work(cell(SETUP), cell(HELPER), cell(EMBEDDING, "todo-1-1"))
    chosen = mine.load_all(["TokenEmbedding", "attention"])
    assert list(chosen) == ["TokenEmbedding", "attention"]
    assert capsys.readouterr().out.count("\n") == 2
    model = parts.Transformer(9, 9, d_model=8, h=2, d_ff=16, N=1, parts=chosen)
    assert type(model.src_emb) is chosen["TokenEmbedding"]


def test_unknown_name_lists_the_parts():
    with pytest.raises(LookupError, match="MultiHeadAttention"):
        mine.load("MultiheadAttention")


def test_every_part_is_finished_and_belongs_to_its_exercise():
    from grader.exercises import by_id

    for name, exercise in mine.PARTS.items():
        assert hasattr(parts, name)
        if exercise in by_id():
            assert by_id()[exercise].symbol == name


# ---- slices -------------------------------------------------------------------------------------------


def names(function, source):
    import ast

    return function(ast.parse(source).body[0])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a, (b, *c) = 1, (2, 3)", {"a", "b", "c"}),
        ("import os.path as p, sys", {"p", "sys"}),
        ("import os.path", {"os"}),
        ("from m import *", {"*"}),
        ("A.forward = f", {"A"}),
        ("table['x'].y = 1", {"table"}),
        ("for i in range(3):\n    t = i", {"i", "t"}),
        ("try:\n    import a\nexcept ImportError:\n    a = None", {"a"}),
        ("with open('f') as file:\n    text = file.read()", {"file", "text"}),
        ("match x:\n    case 1:\n        y = 2", {"y"}),
        ("x = [j for j in y]", {"x"}),
        ("if (n := 10) > 5: pass", {"n"}),
        ("def f():\n    g = 1", {"f"}),
        ("print(a)", set()),
    ],
)
def test_binds(source, expected):
    assert names(binds, source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x, y=z):\n    w = x\n    return w + k", {"z", "k"}),
        ("class A(B):\n    c = d\n    def m(self):\n        return [e(i) for i in self.x]", {"B", "d", "e"}),
        ("v = lambda q: q + r", {"r"}),
        ("@deco\ndef f() -> T: ...", {"deco", "T"}),
    ],
)
def test_uses(source, expected):
    assert names(uses, source) - {"__name__"} == expected


def test_pick_keeps_the_notebooks_order_and_line_numbers():
    cells = [Cell("a = 1", "", 1), Cell("\n\nb = a / 0", "", 2), Cell("c = b", "4.2", 3)]
    picked = pick(cells, "c", "4.2", "nb")
    assert [number for number, _, _ in picked] == [1, 2, 3]
    with pytest.raises(ZeroDivisionError) as caught:
        names_ = {}
        for _, _, code in picked:
            exec(code, names_)
    assert caught.traceback[-1].lineno + 1 == 3
