"""Transformer Lab: the toolbox that a learner's notebook imports.

`check` answers within a tenth of a second, `hint` helps one step at a time, `question` asks a review
question, and `device` says where tensors should live. `grade` works only where an instructor's grader is.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_HOME_OF = {
    "check": "transformer_lab.checking",
    "hint": "transformer_lab.checking.hints",
    "grade": "transformer_lab.checking.grading",
    "question": "transformer_lab.checking.questions",
    "device": "transformer_lab.devices",
    "device_report": "transformer_lab.devices",
    "unfinished": "transformer_lab.notebook",
}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str):
    """Import a public name on first use, so that `import transformer_lab` costs nothing."""
    if name not in _HOME_OF:
        raise AttributeError(f"transformer_lab has no {name!r}; it offers {', '.join(_HOME_OF)}")
    module = importlib.import_module(_HOME_OF[name])
    value = getattr(module, name)
    globals()[name] = value  # a submodule of the same name must not shadow the function
    return value
