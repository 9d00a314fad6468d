"""Special probes and input builders, for the exercises that `function` and `module` do not fit."""

from __future__ import annotations
