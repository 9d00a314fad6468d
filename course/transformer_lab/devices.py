"""Where tensors live: one choice for the whole course."""

from __future__ import annotations

from functools import cache

import torch

from transformer_lab.language import _


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
        return _("Using the GPU {cuda} (cuda).").format(cuda=torch.cuda.get_device_name(0))
    if chosen == "mps":
        return _("Using the Apple GPU (mps).")
    return _("Using the CPU with {torch} threads. Every chapter is sized for it.").format(
        torch=torch.get_num_threads()
    )
