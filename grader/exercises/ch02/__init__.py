"""Chapter 02, positional encoding."""

CHAPTER = "02_positional_encoding"
