"""Chapter 01, embedding."""

CHAPTER = "01_embedding"
