"""Small helpers for notebook cells."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator

from transformer_lab.language import _


def in_notebook() -> bool:
    """Say whether this code runs in IPython (a notebook or its console), which can show HTML."""
    # Where IPython was never imported, this is a plain script: do not import it only to ask.
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


@contextlib.contextmanager
def unfinished() -> Iterator[None]:
    """Let a cell that needs an unfinished TODO say so in one line, where it would stop the notebook.

    Only a stub's NotImplementedError is turned into a sentence; every other error is shown as it is.
    """
    try:
        yield
    except NotImplementedError as stub:
        todo = re.fullmatch(r"TODO (\d+\.\d+)", str(stub))
        if not todo:
            raise
        print(_("Finish TODO {todo} first, then run this cell again.").format(todo=todo[1]))
