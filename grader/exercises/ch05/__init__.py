"""Chapter 05, Add & Norm."""

CHAPTER = "05_add_norm"
