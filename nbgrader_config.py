"""nbgrader's settings: run every nbgrader command from this folder, with the course's environment active.

`python -m grader init FOLDER` puts a copy of this file into a class folder of its own. Leave it as it is;
settings of your own belong into class_settings.py beside it (nbgrader's syntax, `c = get_config()` first).
"""

from pathlib import Path

# nbgrader goes on when its settings cannot be read, and would run learners' code outside the jail and give
# right work 0 points. SystemExit is the one thing that it does not pass over.
try:
    from grader.nbgrader_adapter.settings import configure

    configure(get_config(), Path(__file__).resolve().parent)  # noqa: F821  (traitlets provides get_config)
except Exception as problem:
    raise SystemExit(
        f"Nothing was done: {__file__} cannot be loaded ({type(problem).__name__}: {problem}). Activate the "
        "course's environment, in which the grader is installed, or mend the settings."
    ) from problem
