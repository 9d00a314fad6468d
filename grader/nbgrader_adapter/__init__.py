"""nbgrader's own commands and pages, led through this grader. Judges nothing itself and imports no torch."""
