"""Tries the rest out: an invented class, and benchmarks. Nothing else depends on it."""
