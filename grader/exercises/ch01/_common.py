"""The words from which the texts of 1.3 and 1.4 are drawn."""

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
WORDS = ["owl", "fox", "bee", "ant", "jay", "elk", "yak", "gnu", "cod", "hen", "rat", "sow"]
