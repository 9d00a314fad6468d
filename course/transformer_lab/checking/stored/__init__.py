"""What the build recorded for learners: answer keys, hints, questions. Runs and judges nothing."""
