"""Turns lessons and exercises into what is opened, and tests the tests. Never meets a submission."""
