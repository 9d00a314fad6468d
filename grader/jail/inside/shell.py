"""Runs notebook cells as a kernel would, and keeps what they show as notebook outputs of bounded size."""

from __future__ import annotations

import builtins
import io
import os
import sys
import tempfile
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import SList
from traitlets import Type
from traitlets.config import Config


class Outputs:
    """The outputs of one cell, in nbformat's form, up to `limit` bytes in all."""

    def __init__(self, limit: int):
        self.items: list[dict[str, Any]] = []
        self.left = limit
        self.cut = False
        self._clear_next = False

    def _take(self, text: str) -> str:
        """Return as much of `text` as still fits."""
        if len(text) > self.left:
            text, self.cut = text[: self.left], True
        self.left -= len(text)
        return text

    def _add(self, item: dict[str, Any]) -> None:
        if self._clear_next:
            self.items.clear()
            self._clear_next = False
        self.items.append(item)

    def stream(self, name: str, text: str) -> None:
        text = self._take(text)
        if not text:
            return
        last = self.items[-1] if self.items and not self._clear_next else None
        if last and last["output_type"] == "stream" and last["name"] == name:
            last["text"].append(text)
        else:
            self._add({"output_type": "stream", "name": name, "text": [text]})

    def data(self, kind: str, data: dict, metadata: dict, **more: Any) -> None:
        kept = {}
        for mime, value in data.items():
            text = value if isinstance(value, str) else repr(value)
            if len(text) <= self.left:  # half a picture is no picture: it is left out whole
                self.left -= len(text)
                kept[str(mime)] = text
            else:
                self.cut = True
        if kept:
            self._add({"output_type": kind, "data": kept, "metadata": {}, **more})

    def error(self, name: str, value: str, lines: list[str]) -> None:
        name, value = name[:200], value[:2000]  # an error is always shown, whatever was printed before
        text = "\n".join(lines)[-20_000:]
        self._add({"output_type": "error", "ename": name, "evalue": value, "traceback": text.split("\n")})

    def clear(self, wait: bool) -> None:
        if wait:
            self._clear_next = True
        else:
            self.items.clear()

    def finished(self) -> list[dict[str, Any]]:
        if self.cut:
            note = "\n[The output was longer than is kept; the rest is left out.]\n"
            self._add({"output_type": "stream", "name": "stderr", "text": [note]})
        for item in self.items:
            if item["output_type"] == "stream":
                item["text"] = "".join(item["text"])
        return self.items


class _Stream(io.TextIOBase):
    """sys.stdout or sys.stderr while cells run."""

    encoding = "utf-8"

    def __init__(self, shell: LearnerShell, name: str, number: int):
        self._shell, self.name, self._number = shell, name, number

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._shell.outputs.stream(self.name, text)
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._number

    def flush(self) -> None:
        """Nothing is held back."""


class _Publisher(DisplayPublisher):
    shell: Any

    def publish(self, data, metadata=None, *, transient=None, update=False, **_ignored) -> None:
        self.shell.outputs.data("display_data", data, metadata or {})

    def clear_output(self, wait: bool = False) -> None:
        self.shell.outputs.clear(wait)


class _DisplayHook(DisplayHook):
    shell: Any

    def write_output_prompt(self) -> None:
        """A notebook shows no prompt."""

    def write_format_data(self, format_dict, md_dict=None) -> None:
        self.shell.outputs.data(
            "execute_result", format_dict, md_dict or {}, execution_count=self.prompt_count
        )

    def finish_displayhook(self) -> None:
        """Nothing is written through sys.stdout."""


class LearnerShell(InteractiveShell):
    """An IPython shell whose outputs are kept instead of sent."""

    display_pub_class = Type(_Publisher)
    displayhook_class = Type(_DisplayHook)

    def __init__(self, **settings: Any):
        self.outputs = Outputs(0)
        super().__init__(**settings)

    def _showtraceback(self, etype, evalue, stb) -> None:
        self.outputs.error(getattr(etype, "__name__", "Error"), _text_of(evalue), list(stb))

    def ask_exit(self) -> None:
        """`exit` ends nothing here: the next cell still runs."""

    def enable_gui(self, gui=None) -> None:
        """No window can open here."""

    def system(self, cmd: str) -> None:
        """`!ls`: in Jupyter a command that fails raises nothing, so the lines below it run here as well."""
        self.user_ns["_exit_code"] = 127
        print(f"[There is no shell here; this was not run: {str(cmd)[:200]}]")

    system_raw = system_piped = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """`x = !ls`: no line of output."""
        self.system(cmd)
        return SList([]) if split else ""

    def run(self, source: str, limit: int, spill: int) -> dict[str, Any]:
        """Run one cell. `spill` is the file that descriptors 1 and 2 lead to (C code writes there)."""
        self.outputs = Outputs(limit)
        result = self.run_cell(source, store_history=True)
        low = _drain(spill, limit)
        if low:
            self.outputs.stream("stdout", low)
        error = result.error_in_exec or result.error_before_exec
        return {
            "outputs": self.outputs.finished(),
            "ok": error is None,
            "error": None if error is None else f"{type(error).__name__}: {_text_of(error)}"[:2000],
            "count": result.execution_count,
        }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # a learner's exception may fail to print itself
        return f"(its text could not be read: {type(broken).__name__})"


def _drain(descriptor: int, limit: int) -> str:
    """Return what stands in the spill file, and empty it."""
    try:
        text = os.pread(descriptor, limit + 1, 0).decode("utf-8", "replace")
        os.ftruncate(descriptor, 0)
    except OSError as error:  # the learner closed it: that output is theirs to lose
        return f"[output written below Python was lost: {error.strerror}]\n"
    return text


def _no_installer(shell: LearnerShell, name: str) -> Any:
    """Return what `%pip install x` does here: what is installed is all there is."""
    return lambda line: shell.system(f"{name} {line}")


def _no_input(prompt: object = "", *_ignored: Any) -> str:
    raise RuntimeError("input() cannot be used here: nobody is there to answer while a notebook is graded.")


def new_shell() -> LearnerShell:
    """Make this process's one shell: no history file, no startup files, nothing read from a home folder."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.ipython_dir = os.path.join(os.environ["HOME"], ".ipython")
    shell = LearnerShell.instance(config=config, user_module=None, user_ns={"__name__": "__main__"})
    for name in ("pip", "conda", "mamba", "micromamba", "uv"):
        shell.register_magic_function(_no_installer(shell, name), "line", name)
    builtins.input = _no_input
    return shell


def take_over_output(shell: LearnerShell) -> int:
    """Send what Python and C code print to the shell's outputs. Returns the spill file's descriptor."""
    number, name = tempfile.mkstemp()
    spill = os.open(name, os.O_RDWR | os.O_APPEND)
    os.close(number)
    os.unlink(name)
    for number in (1, 2):
        os.dup2(spill, number)
    sys.stdout, sys.stderr = _Stream(shell, "stdout", 1), _Stream(shell, "stderr", 2)
    return spill
