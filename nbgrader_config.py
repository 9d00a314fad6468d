"""nbgrader's settings. Run every nbgrader command from this folder."""

import sys
from pathlib import Path

root = Path(__file__).resolve().parent
sys.path.insert(0, str(root))

from grader.plugin import configure  # noqa: E402  (needs the line above)

configure(get_config(), root)  # noqa: F821  (traitlets provides get_config)
