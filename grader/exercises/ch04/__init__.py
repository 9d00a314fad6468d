"""Chapter 04, multi-head attention."""

CHAPTER = "04_multi_head"
