"""Special probes and input builders, for the exercises that `function` and `module` do not fit."""

from __future__ import annotations

from typing import Any

from transformer_lab.checking.probes.core import PROBES, Case, probe
from transformer_lab.checking.probes.problems import Trouble


@probe("raises")
def _raises(symbol: Any, inputs: dict[str, Any], values: dict[str, Any]) -> None:
    """Run another case and report the type of the exception it ends in ("nothing" when it ends well).

    inputs: run (a case's tree) and error, the type that is wanted. NotImplementedError passes through,
    since that is how a stub says that it is not done.
    """
    case = Case(**inputs["run"])
    try:
        PROBES[case.probe](symbol, case.inputs, {})
    except (NotImplementedError, KeyboardInterrupt, Trouble):
        raise
    except Exception as error:
        values["raised"] = next(
            (kind.__name__ for kind in type(error).__mro__ if kind.__name__ == inputs["error"]),
            type(error).__name__,
        )
    else:
        values["raised"] = "nothing"
