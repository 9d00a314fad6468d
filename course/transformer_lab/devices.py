"""Where tensors live: one choice for the whole course."""

from __future__ import annotations

from functools import cache

import torch


@cache
def device() -> torch.device:
    """Return the device the course uses: CUDA where there is one, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def device_report() -> str:
    """Return one sentence that says which device was chosen and why."""
    chosen = device().type
    if chosen == "cuda":
        return f"Using the GPU {torch.cuda.get_device_name(0)} (cuda)."
    if chosen == "mps":
        return "Using the Apple GPU (mps)."
    return f"Using the CPU with {torch.get_num_threads()} threads. Every chapter is sized for it."
