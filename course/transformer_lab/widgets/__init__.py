"""Pictures drawn from the learner's own functions: one module for each chapter, on one base."""
