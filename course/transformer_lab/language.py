"""The learner's language: every sentence that a learner reads passes through `_`.

The sentences stand in the sources in English. `python -m grader sentences` takes them out into a catalogue; a
translation lies in `locale/LANGUAGE/LC_MESSAGES/transformer_lab.mo`. Values are filled in after translation:
`_("{name} has shape {found}.").format(name=…, found=…)`.
"""

from __future__ import annotations

import gettext
import os
from functools import cache
from pathlib import Path

VARIABLE = "TRANSFORMER_LAB_LANGUAGE"  # such as "zh_CN"; English when it is not set
LOCALE = Path(__file__).parent / "locale"


def _(sentence: str) -> str:
    """Return the sentence in the learner's language, as it is when there is no translation."""
    return _catalogue(os.environ.get(VARIABLE, "en")).gettext(sentence) if sentence else ""


def N_(sentence: str) -> str:  # noqa: N802  (gettext's own name for it)
    """Mark a sentence that is translated later, where it is shown; return it as it is."""
    return sentence


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    return gettext.translation("transformer_lab", LOCALE, languages=[language], fallback=True)
