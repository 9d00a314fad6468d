# %% [markdown]
# # 02 · Positional encoding
#
# In chapter 01 every word became a row of numbers. This chapter tells the model **where** each word stands.
#
# You will build `PositionalEncoding` (four small TODOs), then look at what it can and cannot do.
# Plan for about 60 minutes.

# %% setup=true
import math

import torch
from torch import nn
from torch.nn import functional as F

from transformer_lab import check, hint, question, unfinished

# %% [markdown]
# ## Where we are
#
# The lit block comes right after the embedding, on both sides of the machine.

# %%
from transformer_lab.widgets.architecture import architecture

architecture("positional encoding")

# %% [markdown]
# ## Predict first
#
# Attention, which you build in the next chapter, mixes tokens: each output is a weighted average of all
# tokens, and each weight depends only on **which two tokens** meet.
#
# Take three tokens with the ids `3 8 4`, and the same three in another order, `8 3 4`.
# *Will the output for token 8 differ between the two?* Decide, then run the cell.
#
# | symbol | meaning | here |
# |---|---|---|
# | $B$ | batch size: how many sentences at once | 1 |
# | $n$ | number of tokens in a sentence | 3 |
# | $d$ | width: how many numbers describe a token (`d_model`) | 4 |

# %%
torch.manual_seed(0)
table = torch.randn(10, 4)  # ten words, d = 4


def attend(ids):
    """Plain attention of a sentence with itself, no positions: [n] -> [n, d]."""
    x = table[ids][None]  # [1, n, d]
    return F.scaled_dot_product_attention(x, x, x)[0]


print("token 8 in 3 8 4:", attend(torch.tensor([3, 8, 4]))[1])
print("token 8 in 8 3 4:", attend(torch.tensor([8, 3, 4]))[0])

# %% [markdown]
# The two rows are the same. Attention sees a *set* of tokens, not a sequence: reorder the input and the
# outputs are reordered in the same way, with the same numbers. (The word for this is *permutation-equivariant*.)
# "The dog bit the man" and "the man bit the dog" would be one and the same sentence.
#
# So the order has to be written **into the numbers** before attention sees them.

# %% [markdown]
# ## The idea: a code for every position
#
# We give every position a code of $d$ numbers and add it to the token's row. What should a good code do?
#
# 1. Every position gets a different code.
# 2. The values stay bounded. If we added the plain number 0, 1, 2, … then token 500 would be all position and no word.
# 3. It works for any length, also one that training never saw.
# 4. "Three tokens further on" should look the same everywhere in the sentence.
#
# Look at how a binary counter writes 0 to 7:

# %%
for position in range(8):
    print(position, format(position, "03b"))

# %% [markdown]
# Three digits of 0 or 1, and every number is different. The rightmost digit flips at every step, the next one
# every second step, the next every fourth. Fast digits tell neighbours apart; slow digits tell regions apart.
#
# Replace each flipping digit by a smooth wave and you have the positional encoding of the Transformer.
# Dimensions come in pairs $(2i, 2i+1)$. Both of a pair turn with the same angular frequency $\theta_i$:
#
# $$PE_{pos,\,2i} = \sin(pos \cdot \theta_i), \qquad PE_{pos,\,2i+1} = \cos(pos \cdot \theta_i),
# \qquad \theta_i = \frac{1}{10000^{\,2i/d}}$$
#
# | symbol | meaning | values |
# |---|---|---|
# | $pos$ | position of the token in the sentence | 0, 1, 2, … |
# | $i$ | number of the pair | 0, 1, …, $d/2 - 1$ |
# | $2i$ | the even column where the pair starts | 0, 2, 4, …, $d - 2$ |
# | $\theta_i$ | radians by which the pair turns from one position to the next | from 1 down to about 1/10000 |
#
# Do not mix up $pos$ and $i$: $pos$ counts **tokens**, $i$ counts **columns**.
#
# ### By hand, $d = 4$
#
# There are two pairs. $\theta_0 = 1/10000^{0/4} = 1$ and $\theta_1 = 1/10000^{2/4} = 1/100$.
#
# | $pos$ | $\sin(pos \cdot 1)$ | $\cos(pos \cdot 1)$ | $\sin(pos / 100)$ | $\cos(pos / 100)$ |
# |---|---|---|---|---|
# | 0 | 0 | 1 | 0 | 1 |
# | 1 | 0.8415 | 0.5403 | 0.0100 | 1.0000 |
# | 2 | 0.9093 | −0.4161 | 0.0200 | 0.9998 |
#
# The first pair turns fast, the second hardly moves. Cover the row for $pos = 3$ with your hand and work it out: $\sin 3 = 0.1411$,
# $\cos 3 = -0.9900$, $\sin 0.03 = 0.0300$, $\cos 0.03 = 0.9996$.

# %% [markdown]
# ## Your turn: TODO 2.1 to 2.4
#
# Replace each `raise NotImplementedError(...)` by your code. Each TODO is one to four lines.
# You can run the check below after every TODO: it tells you which rows pass already.
#
# * **2.1** the even indices $2i$, shape `[d / 2]`
# * **2.2** the divisor $10000^{2i/d}$ of each pair, shape `[d / 2]`
# * **2.3** the table `pe`, shape `[max_len, d]`: `angles = pos / divisor` for all positions at once
# * **2.4** add the first $n$ rows of the table to `x`
#
# Two things worth knowing about PyTorch here:
#
# * `column[:, None]` turns shape `[max_len]` into `[max_len, 1]`. An operation between `[max_len, 1]` and `[d / 2]`
#   gives `[max_len, d / 2]`: this is *broadcasting*.
# * `self.register_buffer("pe", pe)` stores a tensor that belongs to the module (it moves to the GPU with it and is saved
#   with it) but is **not trained**.
#
# Stuck? Run `hint("2.1")`, `hint("2.2")`, … Every call goes one step further.


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
from grader import grade

grade("2.1", PositionalEncoding)
### END HIDDEN TESTS

# %% [markdown]
# ## See it
#
# The picture below is drawn from *your* class. Each row of the image is the code of one position.
#
# *Before you touch a slider:* which columns change from one row to the next, and which look constant?
#
# Then move **position** with the arrow keys and watch the bars on the right.

# %%
from transformer_lab.widgets.ch02 import similarity_by_distance, waves

waves(PositionalEncoding)

# %% [markdown]
# Low dimensions turn fast, high ones slowly, like the digits of the counter. All values stay between −1 and 1,
# whatever the position, and since $\sin^2 + \cos^2 = 1$ in each pair, every code has the same length $\sqrt{d/2}$.
#
# **Break it on purpose.** Change 10000 to 10 in your TODO 2.2 and run the cell and the picture again. Which columns look
# different now? Then read what the check says, and put 10000 back.

# %% [markdown]
# ## Does it cure the blindness?
#
# The experiment from the beginning again, now with your codes added.

# %%
with unfinished():
    encoding = PositionalEncoding(4)

    def attend_with_positions(ids):
        x = encoding(table[ids][None])  # [1, n, d]
        return F.scaled_dot_product_attention(x, x, x)[0]

    print("token 8 in 3 8 4:", attend_with_positions(torch.tensor([3, 8, 4]))[1])
    print("token 8 in 8 3 4:", attend_with_positions(torch.tensor([8, 3, 4]))[0])

# %% [markdown]
# Now the two rows differ: token 8 knows where it stands.
#
# Why is the code **added** and not appended? Appending would be possible too, but it makes every later layer wider. Added codes
# share the $d$ numbers with the word, and with $d = 512$ there is room: training can give words and positions
# different directions in that space.
#
# This is also why chapter 01 multiplied the embedding by $\sqrt d$. The paper starts its embeddings with variance $1/d$;
# times $\sqrt d$ they have the scale of the codes, so neither drowns the other.

# %% [markdown]
# ## How alike are two positions?
#
# The dot product of two codes says how alike they are. Take positions $a$ and $b$. Pair $i$ contributes
#
# $$\sin(a\theta_i)\sin(b\theta_i) + \cos(a\theta_i)\cos(b\theta_i) = \cos\big((a - b)\,\theta_i\big).$$
#
# The positions themselves have disappeared. Only the **offset** $a - b$ is left. That is point 4 of our list.
#
# *Predict:* as the offset grows, does the sum $\sum_i \cos(\text{offset} \cdot \theta_i)$ always fall?
#
# ### TODO 2.5
#
# `offsets` has shape `[K]`; return the sum for each of them, shape `[K]`.


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
from grader import grade

grade("2.5", position_similarity)
### END HIDDEN TESTS

# %%
similarity_by_distance(position_similarity)

# %% [markdown]
# It falls at first, but not for ever. Check one rise by numbers:

# %%
with unfinished():
    near, far = position_similarity(64, torch.tensor([30, 33]))
    print(f"d = 64: offset 30 gives {near:.1f}, offset 33 gives {far:.1f}")

# %% [markdown]
# A token 33 places away looks *more* alike than one 30 places away. You will read that "similarity decays with distance".
# On average it does; at every single step it does not.

# %% [markdown]
# ## Moving by $k$ is a rotation
#
# Write the code of position $p + k$ with the addition theorems, one pair at a time:
#
# $$\begin{pmatrix} \sin((p+k)\theta_i) \\ \cos((p+k)\theta_i) \end{pmatrix} =
# \begin{pmatrix} \cos k\theta_i & \sin k\theta_i \\ -\sin k\theta_i & \cos k\theta_i \end{pmatrix}
# \begin{pmatrix} \sin p\theta_i \\ \cos p\theta_i \end{pmatrix}$$
#
# The matrix depends on $k$ but **not on $p$**. So one and the same matrix $R_k$ moves *every* code $k$ places on,
# and a linear layer can learn to "look three tokens back".
#
# ### TODO 2.6
#
# Build $R_k$, shape `[d, d]`: one 2×2 block for each pair, placed along the diagonal, zeros elsewhere.
# (`torch.block_diag(*blocks)` places matrices along a diagonal.)


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
from grader import grade

grade("2.6", shift_matrix)
### END HIDDEN TESTS

# %% [markdown]
# Try it on your own table: the code of position 7, moved by 5, is the code of position 12.

# %%
with unfinished():
    pe = PositionalEncoding(8, 20).pe
    moved = shift_matrix(5, 8) @ pe[7]
    print("pe[12]:     ", pe[12].numpy().round(3))
    print("R_5 @ pe[7]:", moved.numpy().round(3))

# %% [markdown]
# Remember this rotation. *RoPE*, the position code of Llama, Qwen and DeepSeek, does not add codes at all: it rotates queries and
# keys by exactly such blocks inside attention, so that their dot product depends on the offset only.

# %% [markdown]
# ## The other way: learn the codes
#
# BERT and GPT-2 do not compute codes. They keep an `nn.Embedding` with one row for each position and train it like
# everything else. That is simple and can fit any pattern. The price: a model with `max_len` rows has **no code at all** for
# token `max_len + 1`.
#
# ### TODO 2.7
#
# The module's table `pos` is given. Add rows 0 … n − 1 to `x`, and raise a `ValueError` when the sentence is longer than the table.
# (`self.pos.num_embeddings` is the number of rows. A good error says what was given and what is possible.)


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
from grader import grade

grade("2.7", LearnedPositionalEncoding)
### END HIDDEN TESTS

# %% [markdown]
# ## Review
#
# Choose an answer; each one tells you what it means.

# %%
question("2-a")

# %%
question("2-b")

# %%
question("2-c")

# %%
question("2-d")

# %% [markdown]
# ## Think further
#
# <details><summary><b>What would happen with sin alone, without cos?</b></summary>
#
# One wave alone does not tell a rising from a falling moment: sin takes every value twice in a turn. And the rotation of
# TODO 2.6 needs both numbers: from $\sin p\theta$ alone you cannot compute $\sin((p+k)\theta)$ by a fixed matrix.
# </details>
#
# <details><summary><b>The fixed code exists for any position. Does a model trained on 50 tokens then work on 500?</b></summary>
#
# The code exists, but attention has never been trained on the sums of words and *those* codes, and the slow columns take values
# it never met. In practice quality drops. "Has a code" and "has learned to use it" are two things. Relative codes and
# RoPE, with its ways to stretch positions, were made for this.
# </details>
#
# <details><summary><b>Order-blindness means trouble for sentences. Where is it welcome?</b></summary>
#
# For sets: the points of a scan, the players on a field, the items in a basket. There a model that cannot see the order is right
# by construction, and one simply leaves the positional encoding out.
# </details>

# %% [markdown]
# ## What you built
#
# * a table of waves that gives each position its own bounded code, and a module that adds it;
# * the proof, in code, that two codes compare by their offset alone and that moving is a rotation;
# * the learned alternative and its limit.
#
# Every token now says *what* it is and *where* it is. Next, in **03 · Attention**, tokens start to look at each other.
