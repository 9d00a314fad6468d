"""Where one course lies, by nbgrader's own configuration. Making a Course changes nothing in nbgrader."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from grader.errors import UnknownName, UserMistake
from grader.layout import set_folders

CONFIG = "nbgrader_config.py"


@dataclass
class Course:
    """Where a course lies. `config` is nbgrader's."""

    root: Path
    config: Config

    @staticmethod
    def at(root: Path) -> Course:
        """Return the course in `root`, with its own nbgrader_config.py when it has one.

        Raises UserMistake when that file cannot be loaded: grading by other settings would be a guess.
        """
        root = root.resolve()
        if os.path.lexists(root / CONFIG):
            config = _load(root)
        else:
            config = Config()
            set_folders(config, root)
        return Course(root, config)

    @property
    def directory(self) -> CourseDirectory:
        return CourseDirectory(config=self.config)

    def folder(self, step: str, student: str, chapter: str) -> Path:
        name = getattr(self.directory, f"{step}_directory")
        return Path(self.directory.format_path(name, student, chapter))

    def submitted(self) -> Path:
        return self.root / self.directory.submitted_directory

    def release(self, chapter: str) -> bytes:
        """Return the released notebook. Raises UnknownName when the chapter has none."""
        path = (
            Path(self.directory.format_path(self.directory.release_directory, ".", chapter))
            / f"{chapter}.ipynb"
        )
        if not path.is_file():
            raise UnknownName(
                f"There is no released notebook at {path}. Build it first: python -m grader build"
            )
        return path.read_bytes()


def _load(root: Path) -> Config:
    try:
        return PyFileConfigLoader(CONFIG, path=str(root)).load_config()
    except (Exception, SystemExit) as problem:  # it is an instructor's code: it can fail in any way
        text = " ".join(str(problem).split())
        why = text if isinstance(problem, SystemExit) else f"{type(problem).__name__}: {text}"
        raise UserMistake(
            f"Nothing was done: the settings in {root / CONFIG} do not load ({why}). Mend them, or copy the "
            "file anew from the course."
        ) from problem
