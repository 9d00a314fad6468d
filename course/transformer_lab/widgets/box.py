"""A box of widgets whose text form is the same at every run."""

from __future__ import annotations

from typing import Any

import ipywidgets

from transformer_lab.language import _


class Box(ipywidgets.VBox):
    """A vertical box; notebooks that are compared with their stored outputs see one constant line."""

    def __repr__(self, **_options: Any) -> str:
        return _("(controls: run the cell to use them)")
