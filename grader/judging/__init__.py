"""Reaches verdicts: draws answer keys from seeds and judges by them. Touches no file, process or notebook."""
