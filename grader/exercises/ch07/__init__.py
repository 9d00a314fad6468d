"""Chapter 07, the decoder."""

CHAPTER = "07_decoder"
