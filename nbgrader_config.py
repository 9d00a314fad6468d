"""nbgrader's settings: run every nbgrader command from this folder, with the course's environment active.

To grade in another folder (a class of its own), copy this file there.
"""

from pathlib import Path

from grader.nbgrader_adapter.settings import configure

configure(get_config(), Path(__file__).resolve().parent)  # noqa: F821  (traitlets provides get_config)
