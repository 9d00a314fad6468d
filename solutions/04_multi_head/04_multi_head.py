# %% [markdown]
# # 04 · Multi-head attention

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, mine, question, unfinished

attention = mine.load("attention")  # yours from chapter 03 when it passes its check, else the finished one

# %% todo="4.1"
def split_heads(x, h):
    """Cut the width of x into h heads: [B, n, d] -> [B, h, n, d_k], with d_k = d / h."""
    # TODO 4.1: raise ValueError when h does not divide d; else cut the last axis and put the heads before the tokens
    ### BEGIN SOLUTION
    B, n, d = x.shape
    if d % h != 0:
        raise ValueError(f"{h} heads do not divide a width of {d}")
    return x.view(B, n, h, d // h).transpose(1, 2)  # [B, n, h, d_k] -> [B, h, n, d_k]
    ### END SOLUTION

# %% test="4.1" points=4
check("4.1", split_heads)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("4.1", split_heads)
### END HIDDEN TESTS

# %% todo="4.4"
def merge_heads(x):
    """Lay the heads side by side again: [B, h, n, d_k] -> [B, n, d], with d = h · d_k."""
    # TODO 4.4: undo the two steps of split_heads, the last one first
    ### BEGIN SOLUTION
    B, h, n, d_k = x.shape
    return x.transpose(1, 2).reshape(B, n, h * d_k)  # [B, n, h, d_k] -> [B, n, d]
    ### END SOLUTION

# %% test="4.4" points=4
check("4.4", merge_heads)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("4.4", merge_heads)
### END HIDDEN TESTS

# %% todo="4.2"
class MultiHeadAttention(nn.Module):
    """h attentions side by side, each on d_k = d_model / h features; the last call's weights are kept."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.weights = None  # [B, h, n_q, n_k] after a call
        # TODO 4.2: four linear layers W_q, W_k, W_v and W_o, each from d_model to d_model features
        ### BEGIN SOLUTION
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, q, k, v, mask=None):  # q: [B, n_q, d]   k, v: [B, n_k, d]
        # TODO 4.3: project and split q, k and v; give a mask with 3 axes one for the heads; attend;
        #           keep the weights, detached, as self.weights                      [B, h, n_q, d_k]
        ### BEGIN SOLUTION
        Q = split_heads(self.W_q(q), self.h)  # [B, h, n_q, d_k]
        K = split_heads(self.W_k(k), self.h)  # [B, h, n_k, d_k]
        V = split_heads(self.W_v(v), self.h)  # [B, h, n_k, d_k]
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)  # [B, 1, n_q, n_k]: one mask for all heads of a sequence
        heads, weights = attention(Q, K, V, mask)
        self.weights = weights.detach()
        ### END SOLUTION

        # TODO 4.5: merge the heads, send the result through W_o, and return it        [B, n_q, d]
        ### BEGIN SOLUTION
        return self.W_o(merge_heads(heads))
        ### END SOLUTION

# %% test="4.2" points=14
check("4.2", MultiHeadAttention)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("4.2", MultiHeadAttention)
### END HIDDEN TESTS

# %% todo="4.6"
def attention_parameters(d_model, bias=True):
    """How many numbers a MultiHeadAttention of this width learns, as an int."""
    # TODO 4.6: four layers: a weight each, and a bias each if there is one
    ### BEGIN SOLUTION
    per_layer = d_model * d_model + (d_model if bias else 0)
    return 4 * per_layer
    ### END SOLUTION

# %% test="4.6" points=2
check("4.6", attention_parameters)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("4.6", attention_parameters)
### END HIDDEN TESTS

# %% todo="4.7"
def from_torch(mha):
    """A MultiHeadAttention that gives what the torch.nn.MultiheadAttention `mha` gives."""
    own = MultiHeadAttention(mha.embed_dim, mha.num_heads).to(mha.in_proj_weight)  # same dtype and device
    with torch.no_grad():
        # TODO 4.7: copy the three blocks of in_proj_weight and in_proj_bias, then out_proj; biases of 0 for a None
        ### BEGIN SOLUTION
        biases = torch.zeros(3 * mha.embed_dim) if mha.in_proj_bias is None else mha.in_proj_bias
        for layer, weight, bias in zip((own.W_q, own.W_k, own.W_v), mha.in_proj_weight.chunk(3), biases.chunk(3)):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        own.W_o.weight.copy_(mha.out_proj.weight)
        own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)
        ### END SOLUTION
    return own

# %% test="4.7" points=5
check("4.7", from_torch)
### BEGIN HIDDEN TESTS
from transformer_lab import grade
grade("4.7", from_torch)
### END HIDDEN TESTS
