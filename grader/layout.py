"""Where a course's folders lie, as nbgrader's settings; nothing here imports torch or changes nbgrader."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
COURSE = "transformer-lab"  # nbgrader's name for it, in gradebooks


def set_folders(c: Config, root: Path) -> None:
    """Tell nbgrader where the folders of the course in `root` lie, and what in them is nobody's business."""
    _put_tools_on_path()
    c.CourseDirectory.root = str(root)
    c.CourseDirectory.course_id = COURSE
    c.CourseDirectory.source_directory = "solutions"
    c.CourseDirectory.release_directory = "course/en"
    # Lessons and questions stand beside the built notebooks: they must never reach a learner.
    c.CourseDirectory.ignore = [
        ".ipynb_checkpoints",
        "__pycache__",
        "*.py",
        "*.pyc",
        "*.toml",
        "*.safetensors",
    ]


def _put_tools_on_path() -> None:
    """nbgrader starts `alembic` by its bare name; an environment that is not activated hides it."""
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([tools, os.environ.get("PATH", "")])
