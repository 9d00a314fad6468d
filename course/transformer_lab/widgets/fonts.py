"""A font with Chinese glyphs, where this machine has one."""

from __future__ import annotations

from functools import cache

from matplotlib.font_manager import FontProperties, fontManager

from transformer_lab.language import _

_KNOWN = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # the collection file may register under any of its languages; all have the glyphs
    "Source Han Sans SC",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Arial Unicode MS",
)


@cache
def cjk_family() -> str | None:
    """Return the name of an installed font that has Chinese glyphs, or None."""
    installed = {font.name for font in fontManager.ttflist}
    return next((name for name in _KNOWN if name in installed), None)


def label_font(text: str) -> FontProperties | None:
    """Return the font to draw `text` with (None: matplotlib's own).

    Raises LookupError when the text needs Chinese glyphs and no font has them; then use HTML text.
    """
    if all(ord(character) < 0x2E80 for character in text):
        return None
    if cjk_family() is None:
        raise LookupError(_("no font with Chinese glyphs is installed"))
    return FontProperties(family=cjk_family())
