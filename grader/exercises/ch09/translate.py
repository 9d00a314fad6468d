"""9.4 translate: greedy translations of src [B, n], lists of word ids without <s> and </s>, at most max_len words."""

from __future__ import annotations

import torch

from grader.exercises import rows
from grader.exercises.ch09._common import FIRST_WORD
from grader.exercises.draw import Draw
from grader.exercises.edits import edit, whole
from grader.exercises.model import Exercise, Row
from transformer_lab.checking.probes.core import Case
from transformer_lab.language import _
from transformer_lab.parts import BOS, EOS, PAD

# ---- what is right ----------------------------------------------------------------------------------


@torch.no_grad()
def reference(model, src, max_len=32):
    """Sentence by sentence."""
    model.eval()
    memory, found = model.encode(src), []
    for row in range(len(src)):
        said = []
        while len(said) < max_len:
            prefix = torch.tensor([[BOS, *said]], device=src.device)
            word = int(model.decode(prefix, memory[row : row + 1], src[row : row + 1])[0, -1].argmax())
            if word == EOS:
                break
            said.append(word)
        found.append(said)
    return found


def translate(model, src, max_len=32):
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)  # [B, n, d]
        prefix = torch.full((len(src), 1), BOS, device=src.device)  # [B, 1]
        for _place in range(max_len):
            logits = model.decode(prefix, memory, src)  # [B, m, V]
            word = logits[:, -1].argmax(dim=-1)  # [B]
            prefix = torch.cat([prefix, word[:, None]], dim=1)  # [B, m + 1]
            if (prefix == EOS).any(dim=1).all():
                break
    rows = [row[1:] for row in prefix.tolist()]
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


@torch.inference_mode()
def rows_leave(model, src, max_len=32):
    """Rows that are finished leave the batch."""
    model.train(False)
    memory, found, going = model.encode(src), [[] for _ in src], list(range(len(src)))
    for _place in range(max_len):
        prefix = torch.tensor([[BOS, *found[row]] for row in going], device=src.device)
        words = model.decode(prefix, memory[going], src[going])[:, -1].max(dim=-1).indices.tolist()
        going = [
            row
            for row, word in zip(list(going), words, strict=True)
            if word != EOS and not found[row].append(word)
        ]
        if not going:
            break
    return found


def flags(model, src, max_len=32):
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        ids = torch.full((src.size(0), max_len + 1), PAD, device=src.device)
        ids[:, 0] = BOS
        open_ = torch.ones(src.size(0), dtype=torch.bool, device=src.device)
        for place in range(1, max_len + 1):
            scores = model.decode(ids[:, :place], memory, src).softmax(-1)
            ids[:, place] = torch.where(open_, scores[:, place - 1].argmax(-1), PAD)
            open_ &= ids[:, place] != EOS
            if not bool(open_.any()):
                break
    return [[token for token in row[1:] if token not in (PAD, EOS)] for row in ids.tolist()]


def one_by_one(model, src, max_len=32):
    was = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        found = []
        for one, m in zip(src.split(1), memory.split(1), strict=True):
            ids = [BOS]
            for _place in range(max_len):
                logits = model.decode(torch.tensor([ids], device=src.device), m, one)
                ids.append(torch.topk(logits[0, -1], 1).indices.item())
                if ids[-1] == EOS:
                    ids.pop()
                    break
            found.append(ids[1:])
    model.train(was)
    return found


# ---- rows -------------------------------------------------------------------------------------------


def _scripts(draw: Draw, lengths: list[int]) -> dict:
    """A case's inputs: sentences of these lengths, all words different from `wrong`, in random rows."""
    vocabulary = draw.size(21, 25)
    wrong = vocabulary - 1
    lengths = [lengths[i] for i in draw.rng.permutation(len(lengths))]
    firsts = (FIRST_WORD + draw.rng.permutation(len(lengths) + 3)[: len(lengths)]).tolist()
    sentences = {
        str(first): [*draw.integers(FIRST_WORD, wrong - 1, length).tolist(), EOS]
        for first, length in zip(firsts, lengths, strict=True)
    }
    src = draw.integers(FIRST_WORD, 9, len(lengths), 5)
    src[:, 0] = torch.tensor(firsts)
    src[:, 3], src[0, 4], src[1:, 4] = EOS, EOS, PAD
    return {"sentences": sentences, "vocabulary": vocabulary, "wrong": wrong, "src": src}


def _words(draw: Draw) -> list[Case]:
    return [
        Case("translate", _scripts(draw, [2, 6, 4, 9]) | {"kwargs": {"max_len": 15}}),
        Case("translate", _scripts(draw, [4]) | {"kwargs": {"max_len": 11}}),
        Case("translate", _scripts(draw, [3, 5, 0, 6, 4]) | {"kwargs": {"max_len": 15}}),  # B = n
    ]


def _limit(draw: Draw) -> list[Case]:
    return [Case("translate", _scripts(draw, [3, 8, 11]) | {"kwargs": {"max_len": draw.size(5, 6)}})]


def _default(draw: Draw) -> list[Case]:
    return [Case("translate", _scripts(draw, [3, 38]) | {"kwargs": {}})]


def _elsewhere(draw: Draw) -> list[Case]:
    """There a model cannot be read, so every right answer ends where it looks whether a sentence has ended."""
    src = draw.integers(FIRST_WORD, 9, 3, 5)
    return [Case("function", {"args": [{"$": "speechless model", "vocabulary": 11}, src, 6]})]


WORDS = ("words",)

ROWS = (
    Row(
        "words",
        "each sentence is written word by word until </s>, whatever the others' lengths",
        _words,
        looks=("out",),
        weight=4,
    ),
    Row("limit", "a sentence that does not end is cut after max_len words", _limit, looks=("out",)),
    Row(
        "default",
        "max_len is 32 when it is not given",
        _default,
        looks=("out",),
        needs=("words", "limit"),
    ),
    Row(
        "encoded once",
        "the source is encoded once, not again for each word",
        _words,
        looks=("encoded",),
        needs=WORDS,
        weight=0.5,  # the other half is that of the row "ends"
    ),
    Row(
        "evaluation",
        "the model is in evaluation mode (no dropout), and no gradients are recorded",
        _words,
        looks=("evaluating", "gradients"),
        needs=WORDS,
    ),
    Row(
        "input kept",
        "src is left unchanged",
        _words,
        looks=("changed",),
        needs=WORDS,
        weight=0.5,  # the other half is the device row's
    ),
    Row(
        "ends",
        "it ends as soon as every sentence has reached </s>",
        _words,
        looks=("needless",),
        needs=WORDS,
        weight=0.5,
    ),
    rows.device(
        _elsewhere,
        says=_("new tensors are made where src is, so that it also runs on a GPU"),
        needs=WORDS,
        weight=0.5,
    ),
)

# ---- known mistakes ---------------------------------------------------------------------------------


def translate_with_gradients(model, src, max_len=32):
    model.eval()
    memory = model.encode(src)
    prefix = torch.full((len(src), 1), BOS, device=src.device)
    for _place in range(max_len):
        logits = model.decode(prefix, memory, src)
        word = logits[:, -1].argmax(dim=-1)
        prefix = torch.cat([prefix, word[:, None]], dim=1)
        if (prefix == EOS).any(dim=1).all():
            break
    rows = [row[1:] for row in prefix.tolist()]
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


MISTAKES = (
    edit(
        "first position",
        "You read the logits of the first position. The next word is what the last position says.",
        "logits[:, -1]",
        "logits[:, 0]",
    ),
    edit(
        "wrong axis",
        "logits[:, :, -1] is one word's score at all positions. logits are [B, m, V]: the last position is "
        "logits[:, -1], and argmax runs over its words.",
        "logits[:, -1]",
        "logits[:, :, -1]",
    ),
    edit(
        "all positions",
        "The words of all positions are joined to the prefix. Only the last position's word is new; the others are said "
        "already.",
        "logits[:, -1].argmax",
        "logits.argmax",
        "word[:, None]",
        "word",
    ),
    edit(
        "word without axis",
        "The new words have shape [B] and the prefix [B, m]. Give the words a second axis, word[:, None], before you "
        "join them.",
        "word[:, None]",
        "word",
    ),
    edit("least likely", "You take the least likely word (argmin).", "argmax", "argmin"),
    edit(
        "sampled",
        "Words are drawn at random. Greedy writing takes the likeliest one.",
        "logits[:, -1].argmax(dim=-1)",
        "torch.multinomial(logits[:, -1].softmax(-1), 1)[:, 0]",
    ),
    edit(
        "newest word only",
        "The decoder is given only the newest word. It needs the whole beginning of the sentence, from <s> on.",
        "decode(prefix,",
        "decode(prefix[:, -1:],",
    ),
    edit(
        "starts with end",
        "The sentence starts with </s>; the decoder learned to start from <s> (BOS).",
        "BOS",
        "EOS",
    ),
    edit(
        "starts with padding",
        "The sentence starts with <pad>; the decoder learned to start from <s> (BOS).",
        "BOS",
        "PAD",
    ),
    edit(
        "starts from source",
        "The decoder is given the source as its beginning. It starts from <s> alone; the source reaches it through "
        "memory.",
        "torch.full((len(src), 1), BOS, device=src.device)",
        "src",
        "(prefix == EOS)",
        "(prefix[:, src.size(1) :] == EOS)",
        "row[1:]",
        "row[src.size(1) :]",
    ),
    edit(
        "stops with the first",
        "The loop ends when the first sentence has reached </s>; the others are cut. Go on until all have.",
        ".any(dim=1).all()",
        ".any()",
    ),
    edit(
        "stops together",
        "The loop ends only when all sentences say </s> at the same step, and what stands behind the first </s> is kept.",
        "(prefix == EOS).any(dim=1).all()",
        "(word == EOS).all()",
        "row[: row.index(EOS)] if EOS in row else row for row in rows",
        "[word for word in row if word != EOS] for row in rows",
    ),
    edit(
        "words after the end",
        "What the model says after </s> is kept. A sentence ends at its first </s>.",
        "row[: row.index(EOS)] if EOS in row else row for row in rows",
        "[word for word in row if word != EOS] for row in rows",
    ),
    edit(
        "keeps end",
        "</s> is part of your translations. Leave it out: it only says where to stop.",
        "row.index(EOS)]",
        "row.index(EOS) + 1]",
    ),
    edit("keeps beginning", "<s> is part of your translations. Leave it out.", "row[1:]", "row"),
    edit(
        "last word lost",
        "The last word of each sentence is missing.",
        "row.index(EOS)] if EOS in row else row for",
        "row.index(EOS) - 1] if EOS in row else row[:-1] for",
    ),
    edit(
        "tensor",
        "You return a tensor; a list of lists of ints was asked for (sentences have unlike lengths).",
        "    rows = [row[1:] for row in prefix.tolist()]\n",
        "",
        "[row[: row.index(EOS)] if EOS in row else row for row in rows]",
        "prefix[:, 1:]",
    ),
    edit(
        "first sentence only",
        "Only the first sentence is translated. src holds B of them.",
        "    rows = [row[1:] for row in prefix.tolist()]\n",
        "    row = prefix[0].tolist()[1:]\n",
        "[row[: row.index(EOS)] if EOS in row else row for row in rows]",
        "row[: row.index(EOS)] if EOS in row else row",
    ),
    edit("one too many", "max_len + 1 words are written.", "range(max_len)", "range(max_len + 1)"),
    edit("one too few", "Only max_len - 1 words are written.", "range(max_len)", "range(max_len - 1)"),
    edit("another limit", "The default of max_len is 32.", "max_len=32", "max_len=8"),
    edit(
        "encoded again",
        "The source is encoded again for every word. Its memory never changes: encode it once, before the loop.",
        "            logits =",
        "            memory = model.encode(src)\n            logits =",
    ),
    edit(
        "whole model",
        "model(src, prefix) reads the source again for every word. Its memory never changes: model.encode(src) once, "
        "then model.decode(prefix, memory, src).",
        "        memory = model.encode(src)  # [B, n, d]\n",
        "",
        "model.decode(prefix, memory, src)",
        "model(src, prefix)",
    ),
    edit(
        "training mode",
        "The model stays in training mode, so dropout changes words at random. Call model.eval() first.",
        "    model.eval()\n",
        "",
    ),
    whole(
        "gradients",
        "Gradients are recorded for every word, which costs time and memory. Translate under torch.no_grad().",
        translate_with_gradients,
    ),
    edit(
        "never done",
        "The loop goes on to max_len words when every sentence has reached </s> long before. Leave it as soon as each "
        "row of the prefix holds an </s>.",
        "            if (prefix == EOS).any(dim=1).all():\n                break\n",
        "",
    ),
    edit(
        "on the CPU",
        "The first tokens <s> are made on the CPU, whatever device src is on. Make them with device=src.device.",
        ", device=src.device",
        "",
    ),
)

# ---- the exercise -----------------------------------------------------------------------------------

EXERCISE = Exercise(
    id="9.4",
    symbol="translate",
    kind="function",
    parameters=("model", "src", "max_len"),
    points=8,
    todos=("9.4",),
    rows=ROWS,
    reference=reference,
    answer=translate,
    mistakes=MISTAKES,
    alternatives=(rows_leave, flags, one_by_one),
    spoken={
        "out": _("the list of translations"),
        "encoded": _("the number of calls of encode"),
        "evaluating": _("whether the model was in evaluation mode"),
        "gradients": _("whether gradients were recorded"),
        "needless": _("whether the model was asked for words when every sentence had ended"),
    },
    equivalent={
        "len(src) → len(memory)": "encode returns one row for each sentence",
        "torch.full((len(src), 1), BOS, device=src.device) → "
        "torch.full((len(src), 1), BOS, device=memory.device)": "memory is where the model is, and src must be there",
        "logits[:, -1].argmax(dim=-1) → logits[:, -1].argmax(dim=1)": "[B, V] has two axes: 1 is the last",
        "torch.cat([prefix, word[:, None]], dim=1) → "
        "torch.cat([prefix, word[:, None]], dim=-1)": "the prefix has two axes: 1 is the last",
        "(prefix == EOS).any(dim=1) → (prefix == EOS).any(dim=-1)": "the prefix has two axes: 1 is the last",
    },
    hints={
        "9.4": (
            _("What does the decoder need at the first step, and which of its outputs is the next word?"),
            _(
                "prefix [B, 1] of <s> → logits [B, m, V] → last position [B, V] → words [B] → prefix [B, 2] → … and at "
                "the end one list for each row."
            ),
            _(
                "encode once; up to max_len times: decode the prefix, take the likeliest word of the last position, join "
                "it on; stop when each row holds </s>; give each row back without <s> and up to its first </s>"
            ),
        ),
    },
)
