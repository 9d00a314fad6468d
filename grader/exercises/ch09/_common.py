"""What the exercises of chapter 09 share."""

FIRST_WORD = 4  # ids below are special tokens
