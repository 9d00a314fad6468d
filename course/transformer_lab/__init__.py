"""Transformer Lab: the toolbox that a learner's notebook imports.

`check` answers within a tenth of a second, `hint` helps one step at a time, `question` asks a review
question, `device` says where tensors should live, and `mine` loads your own parts of earlier chapters.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_HOME_OF = {
    "check": "transformer_lab.checking",
    "hint": "transformer_lab.checking.stored.hints",
    "question": "transformer_lab.checking.stored.questions",
    "device": "transformer_lab.devices",
    "device_report": "transformer_lab.devices",
    "unfinished": "transformer_lab.notebook",
}

_MODULES = {"mine": "transformer_lab.parts.mine"}

__all__ = ["__version__", *_HOME_OF, *_MODULES]


def __getattr__(name: str):
    """Import a public name on first use, so that `import transformer_lab` costs nothing."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME_OF:
        offers = ", ".join([*_HOME_OF, *_MODULES])
        raise AttributeError(f"transformer_lab has no {name!r}; it offers {offers}")
    module = importlib.import_module(_HOME_OF[name])
    value = getattr(module, name)
    globals()[name] = value  # a submodule of the same name must not shadow the function
    return value
