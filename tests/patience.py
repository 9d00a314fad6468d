"""How long tests wait for what may hang.

No test measures speed, so a limit only ends what would never end. It holds at ten times the time that the
longest step takes alone on two cores (about three minutes), so that a busy machine passes too.
"""

HANG = 1800.0  # seconds
