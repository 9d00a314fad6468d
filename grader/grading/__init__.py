"""Grades one submission, bytes in and marks out. Knows no class, no gradebook and no other submission."""
