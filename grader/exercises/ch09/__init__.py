"""Chapter 09, translation."""

CHAPTER = "09_translation"
