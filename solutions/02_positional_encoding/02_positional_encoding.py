# %% [markdown]
# # 02 · Positional encoding

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, question

# %% todo="2.1"
class PositionalEncoding(nn.Module):
    """Adds a fixed code of each token's position."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        # TODO 2.1: the even indices 2i: 0, 2, 4, …, d_model - 2            [d / 2]
        ### BEGIN SOLUTION
        even = torch.arange(0, d_model, 2)
        ### END SOLUTION

        # TODO 2.2: the divisor 10000^(2i / d_model) of each pair of columns   [d / 2]
        ### BEGIN SOLUTION
        divisor = 10000.0 ** (even / d_model)
        ### END SOLUTION

        # TODO 2.3: a table pe [max_len, d]: sin(pos / divisor) in even columns, cos in odd ones
        ### BEGIN SOLUTION
        angles = torch.arange(max_len)[:, None] / divisor  # [max_len, d / 2]
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(angles)
        pe[:, 1::2] = torch.cos(angles)
        ### END SOLUTION
        self.register_buffer("pe", pe)

    def forward(self, x):  # x: [B, n, d]
        # TODO 2.4: add the codes of the first n positions to x, and return the sum   [B, n, d]
        ### BEGIN SOLUTION
        n = x.size(1)
        return x + self.pe[:n].to(x.dtype)
        ### END SOLUTION

# %% test="2.1" points=8
check("2.1", PositionalEncoding)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("2.1", PositionalEncoding)
### END HIDDEN TESTS

# %% todo="2.5"
def position_similarity(d_model, offsets):
    """Dot product of two codes that lie `offsets` positions apart: [K] -> [K]."""
    # TODO 2.5: sum cos(offset · θ_i) over the d / 2 frequencies θ_i
    ### BEGIN SOLUTION
    theta = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # [d / 2]
    return torch.cos(offsets[:, None] * theta).sum(dim=-1)  # [K, d / 2] -> [K]
    ### END SOLUTION

# %% test="2.5" points=3
check("2.5", position_similarity)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("2.5", position_similarity)
### END HIDDEN TESTS

# %% todo="2.6"
def shift_matrix(k, d_model):
    """The matrix R [d, d] with pe[p + k] = R @ pe[p] for every p."""
    # TODO 2.6: one 2×2 rotation by k · θ_i for every pair of columns, on the diagonal
    ### BEGIN SOLUTION
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # [d / 2]
    blocks = [torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angles]
    return torch.block_diag(*blocks)
    ### END SOLUTION

# %% test="2.6" points=4
check("2.6", shift_matrix)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("2.6", shift_matrix)
### END HIDDEN TESTS

# %% todo="2.7"
class LearnedPositionalEncoding(nn.Module):
    """Adds a learned code of each token's position; knows max_len positions and no more."""

    def __init__(self, d_model, max_len):
        super().__init__()
        self.pos = nn.Embedding(max_len, d_model)

    def forward(self, x):  # [B, n, d]
        # TODO 2.7: add the codes of positions 0 … n - 1; raise ValueError when n > max_len
        ### BEGIN SOLUTION
        n = x.size(1)
        if n > self.pos.num_embeddings:
            raise ValueError(f"{n} tokens, but this module learned only {self.pos.num_embeddings} positions")
        return x + self.pos(torch.arange(n, device=x.device))  # [B, n, d] + [n, d]
    ### END SOLUTION

# %% test="2.7" points=4
check("2.7", LearnedPositionalEncoding)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("2.7", LearnedPositionalEncoding)
### END HIDDEN TESTS
