# %% [markdown]
# # 03 · Attention

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, question, unfinished

# %% todo="3.1"
class SelfAttention(nn.Module):
    """One attention: every token of x collects from all tokens of its sentence. x [B, n, d] -> [B, n, d]."""

    def __init__(self, d_model):
        super().__init__()
        # TODO 3.1: three layers W_q, W_k, W_v, each from d_model to d_model
        ### BEGIN SOLUTION
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, x):  # x: [B, n, d]
        # TODO 3.1, second half: Q, K and V, each [B, n, d]
        ### BEGIN SOLUTION
        Q, K, V = self.W_q(x), self.W_k(x), self.W_v(x)
        ### END SOLUTION

        # TODO 3.2: the scores Q Kᵀ / √d                                     [B, n, n]
        ### BEGIN SOLUTION
        scores = Q @ K.transpose(-2, -1) / math.sqrt(K.size(-1))
        ### END SOLUTION

        # TODO 3.3: the weights: softmax over the keys                         [B, n, n]
        ### BEGIN SOLUTION
        weights = torch.softmax(scores, dim=-1)
        ### END SOLUTION

        # TODO 3.4: return the weighted sum of the values                      [B, n, d]
        ### BEGIN SOLUTION
        return weights @ V
        ### END SOLUTION

# %% test="3.1" points=8
check("3.1", SelfAttention)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("3.1", SelfAttention)
### END HIDDEN TESTS

# %% todo="3.5"
def stable_softmax(x, dim=-1):
    """exp(x) / Σ exp(x) along `dim`, finite for numbers of any size. Same shape as x."""
    # TODO 3.5: subtract the maximum along dim, then exp, then divide by the sum along dim
    ### BEGIN SOLUTION
    shifted = x - x.amax(dim=dim, keepdim=True)
    e = torch.exp(shifted)
    return e / e.sum(dim=dim, keepdim=True)
    ### END SOLUTION

# %% test="3.5" points=4
check("3.5", stable_softmax)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("3.5", stable_softmax)
### END HIDDEN TESTS

# %% todo="3.6"
def attention(q, k, v, mask=None):
    """q [..., n_q, d_k], k [..., n_k, d_k], v [..., n_k, d_v] -> out [..., n_q, d_v], weights [..., n_q, n_k]."""
    # TODO 3.6: scores, mask (True: may attend), softmax, weighted sum; return out and weights
    ### BEGIN SOLUTION
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # [..., n_q, n_k]
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
    ### END SOLUTION

# %% test="3.6" points=10
check("3.6", attention)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("3.6", attention)
### END HIDDEN TESTS

# %% todo="3.7"
def score_variance(d_k, samples, generator=None):
    """Draw `samples` pairs q, k of width d_k; return the variance of q·k and of q·k / √d_k, as floats."""
    # TODO 3.7: draw q and k with torch.randn (pass the generator on), and measure both variances
    ### BEGIN SOLUTION
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=-1)  # [samples]
    return scores.var().item(), (scores / math.sqrt(d_k)).var().item()
    ### END SOLUTION

# %% test="3.7" points=4
check("3.7", score_variance)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("3.7", score_variance)
### END HIDDEN TESTS
