"""What stopped a learner's code, as one sentence in plain words."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from dataclasses import asdict, dataclass
from typing import Any

from transformer_lab.language import N_, _

TEXT_LIMIT = 400  # characters of an exception's own text that are shown
LINE_LIMIT = 120  # characters of the line it came from


@dataclass(frozen=True)
class Problem:
    """kind: todo, raised, missing, attributes, shape, ...; text: the sentence; error: type and message.

    todo: the number of the TODO that code stopped at, where the kind is "todo".
    """

    kind: str
    text: str
    error: str = ""
    todo: str = ""

    def tree(self) -> dict[str, Any]:
        return asdict(self)


class Trouble(Exception):
    """A mistake that a probe recognised itself: its kind, an English sentence and what is filled in there.

    The Problem holds the sentence in the learner's language, and in English as what it is recognised by.
    """

    def __init__(self, kind: str, sentence: str, /, **values: Any):
        super().__init__(sentence.format(**values) if values else sentence)
        self.kind, self._sentence, self._values = kind, sentence, values

    def told(self) -> str:
        """Return the sentence in the learner's language."""
        sentence = _(self._sentence)
        return sentence.format(**self._values) if self._values else sentence


# (pattern in "Type: message", sentence): mistakes that Python's own message does not explain to a newcomer
_EXPLAINED = [
    (
        r"before Module\.__init__\(\) call",
        N_("Call super().__init__() first in __init__: nn.Module prepares itself there."),
    ),
    (
        r"missing the required \"forward\" function",
        N_("The class has no method named forward. Check its spelling and its indentation."),
    ),
    (
        r"view size is not compatible",
        N_("view needs a tensor whose memory is in order; after transpose it is not. Use reshape."),
    ),
    (
        r"modified by an inplace operation|leaf Variable that requires grad",
        N_(
            "An operation in place (such as += or x[...] =) changed a tensor that the gradient needs. "
            "Make a new tensor: x = x + ..."
        ),
    ),
    (
        r"Expected all tensors to be on the same device",
        N_("Two tensors are on different devices. Create new tensors with device=x.device."),
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied|must match the size of tensor|batch1 tensor to match|"
        r"Expected size for first two dimensions",
        N_(
            "Two shapes do not fit together. Print both on the line before. Is a transpose "
            "missing, or an axis of length 1, as in column[:, None]?"
        ),
    ),
    (
        r"The expanded size of the tensor",
        N_("The part on the left has another shape than what is stored into it. Print both shapes."),
    ),
    (
        r"bitwise_xor|unsupported operand type\(s\) for \^",
        N_("In Python ** is power; ^ is something else."),
    ),
    (
        r"elements cannot be converted to Scalar|only one element tensors|must be real number, not Tensor",
        N_("The functions of math take one number. For a tensor use torch's own: torch.sin, torch.exp, …."),
    ),
    (
        r"argument 'input' .*must be Tensor, not (int|float)",
        N_("This function of torch takes a tensor. For one plain number use math's: math.sqrt, math.exp, …."),
    ),
    (
        r"'torch\.Size' object is not callable|method' object is not subscriptable|method object is not",
        N_("Parentheses and brackets: it is x.size(1), or x.shape[1]."),
    ),
    (
        r"unsupported operand type.*'(Linear|Embedding)'",
        N_("A layer is called like a function: self.W_q(x)."),
    ),
    (
        r"'Embedding' object is not subscriptable",
        N_("An nn.Embedding is called with ids, self.pos(ids); its table is self.pos.weight."),
    ),
    (
        r"'NoneType' object (is not|has no)|NoneType",
        N_("Something is None here. Does a function forget its return?"),
    ),
    (
        r"softmax\(\) (received an invalid combination|missing)",
        N_("softmax has to know along which axis: dim=-1 is the last one."),
    ),
    (
        r"the same dtype, but got|expected scalar type",
        N_(
            "Two tensors of different types meet. Turn one into the other's type, for example "
            "with .to(x.dtype)."
        ),
    ),
    (
        r"^NameError",
        N_(
            "Python does not know this name here. Is it spelled as where it is defined, and is "
            "that line filled in already? (What __init__ keeps for forward is written "
            "self.name in both.)"
        ),
    ),
]

# The same for calls that failed at the learner's own signature, before any line of theirs ran
_EXPLAINED_CALLS = [
    (
        r"__init__\(\) takes 1 positional argument",
        N_(
            "The class has no __init__ that takes arguments. Is it spelled with two "
            "underscores on both sides?"
        ),
    ),
    (
        r"got an unexpected keyword argument",
        N_("A parameter has another name than in the task."),
    ),
    (
        r"takes .*positional arguments? but \d+ (was|were) given",
        N_("It takes fewer arguments than the task says. In a class, a method's first parameter is self."),
    ),
    (
        r"missing \d+ required (positional|keyword-only) argument",
        N_("It takes more arguments than the task says."),
    ),
]


def problem_of(error: BaseException) -> Problem:
    """Return the Problem for an exception that came out of a learner's code."""
    if isinstance(error, Trouble):
        return Problem(error.kind, error.told(), str(error))
    message = _message(error)
    todo = re.match(r"NotImplementedError: TODO (\d+\.\d+)", message)
    if todo:
        text = _("Stops at TODO {todo}, which is still open.").format(todo=todo[1])
        return Problem("todo", text, message, todo[1])
    where = _where(error)
    raised = _("Your code raised {error}{where}.").format(
        error=message if where else message.rstrip("."), where=where
    )
    for pattern, sentence in _EXPLAINED if where else _EXPLAINED + _EXPLAINED_CALLS:
        if re.search(pattern, message):
            return Problem("raised", f"{_(sentence)} ({raised})", message)
    return Problem("raised", raised, message)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # a learner's exception may fail to print itself
        text = f"(its text could not be read: {type(broken).__name__})"
    text = " ".join(text.split())[:TEXT_LIMIT]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: BaseException) -> str:
    """Return " at line 7: `code`" for the innermost line that is the learner's, or ""."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_learners(frame.filename)]
    if not own:
        return ""
    line = (own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0)).strip()
    quoted = f": `{line if len(line) <= LINE_LIMIT else line[:LINE_LIMIT] + ' …'}`" if line else ""
    return _(" at line {lineno} of its cell{quoted}").format(lineno=own[-1].lineno, quoted=quoted)


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _is_learners(filename: str) -> bool:
    library = filename.startswith((sys.prefix, sys.base_prefix)) or "site-packages" in filename
    return not (library or filename.startswith((_OURS, "<frozen")))
