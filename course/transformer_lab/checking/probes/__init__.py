"""Runs a learner's symbol on a case and reports, in plain data, what it did. Knows no answer."""

from transformer_lab.checking.probes import (  # each registers its probes and builders
    attention,
    composite,
    describe,
    device,
    exceptions,
    lookup,
    output,
    sublayers,
    training,
    variance,
)
from transformer_lab.checking.probes.core import PROBES, Case, Observation, observe, probe

__all__ = [
    "PROBES",
    "Case",
    "Observation",
    "attention",
    "composite",
    "describe",
    "device",
    "exceptions",
    "lookup",
    "observe",
    "output",
    "probe",
    "sublayers",
    "training",
    "variance",
]
