"""nbgrader's settings: run every nbgrader command from this folder.

To grade in another folder (a class of its own), copy this file there and start nbgrader with
PYTHONPATH set to the folder that holds `grader/`.
"""

import sys
from pathlib import Path

here = Path(__file__).resolve().parent
if (here / "grader").is_dir():
    sys.path.insert(0, str(here))

from grader.plugin import configure  # noqa: E402  (needs the path above)

configure(get_config(), here)  # noqa: F821  (traitlets provides get_config)
