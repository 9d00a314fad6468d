"""What only an instructor or an author runs: building, judging and grading the course."""
