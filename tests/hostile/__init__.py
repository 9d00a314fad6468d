"""Hostile, broken and odd submissions, generated; each with the marks it must get."""
