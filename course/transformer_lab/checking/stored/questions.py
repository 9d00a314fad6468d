"""Review questions: choose an answer and read what it says about your understanding."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from typing import Any

from transformer_lab.checking.stored.recorded import DATA
from transformer_lab.language import _
from transformer_lab.notebook import in_notebook

FILE = "questions.json"


@cache
def _questions() -> dict[str, dict[str, Any]]:
    return json.loads((DATA / FILE).read_text(encoding="utf-8"))


def question(name: str, answer: str | None = None) -> None:
    """Ask a review question, such as "2-a"; with `answer` (a letter) say at once what that choice means."""
    if name not in _questions():
        print(
            _("There is no question {name!r}. The questions are: {questions}.").format(
                name=name, questions=", ".join(_questions())
            )
        )
        return
    if answer is not None:
        print(reply(name, answer))
        return
    asked = _questions()[name]
    if in_notebook():
        _show_buttons(name, asked)
    else:
        print(_as_text(name, asked))


def reply(name: str, answer: str) -> str:
    """Return the sentence that answers a choice; a wrong one names the misunderstanding."""
    choices = _questions()[name]["choices"]
    letter = str(answer).strip().lower()[:1]
    if letter not in choices:
        return _("Answer with one of: {choices}.").format(choices=", ".join(choices))
    choice = choices[letter]
    return (_("✓ Right. ") if choice["right"] else _("✗ Not quite. ")) + _(choice["says"])


def _as_text(name: str, asked: dict[str, Any]) -> str:
    lines = [_("Question {name}: {asked}").format(name=name, asked=_(asked["text"]))]
    lines += [f"  {letter}) {_(choice['text'])}" for letter, choice in asked["choices"].items()]
    return "\n".join([*lines, _('Choose below, or run question("{name}", "a").').format(name=name)])


def _as_html(name: str, asked: dict[str, Any]) -> str:
    choices = "".join(
        f"<div style='padding-left:1em'><b>{letter}</b> &nbsp;{escape(_(choice['text']))}</div>"
        for letter, choice in asked["choices"].items()
    )
    return (
        f"<div style='line-height:1.5'><b>{escape(name)}</b> &nbsp;{escape(_(asked['text']))}{choices}</div>"
    )


def _show_buttons(name: str, asked: dict[str, Any]) -> None:
    """Show the question, then one button a choice. The question stays where widgets do not work."""
    import ipywidgets
    from IPython.display import display

    from transformer_lab.widgets.box import Box

    display({"text/html": _as_html(name, asked), "text/plain": _as_text(name, asked)}, raw=True)
    said = ipywidgets.HTML()
    buttons = [
        ipywidgets.Button(description=letter, tooltip=_(choice["text"]), layout={"width": "3em"})
        for letter, choice in asked["choices"].items()
    ]

    def answered(button: Any) -> None:
        sentence = escape(f"{button.description}: {reply(name, button.description)}")
        said.value = f'<p role="status" aria-live="polite">{sentence}</p>'

    for button in buttons:
        button.on_click(answered)
    display(Box([ipywidgets.HBox(buttons), said]))
