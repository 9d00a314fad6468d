"""Compares observations with an answer key and puts the verdict into words. Runs no learner's code."""
