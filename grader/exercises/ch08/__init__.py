"""Chapter 08, output: from rows to sentences."""

CHAPTER = "08_output"
