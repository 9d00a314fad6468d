"""Chapter 03, attention."""

CHAPTER = "03_attention"
