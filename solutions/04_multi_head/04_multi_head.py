# %% [markdown]
# # 04 · Multi-head attention
#
# In chapter 03 a token looked around **once**: one row of weights, one weighted sum. Here it looks around
# `h` times at once, each time with other questions, and the answers are put side by side. That is the block
# the Transformer really uses.

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, mine, question, unfinished

attention = mine.load("attention")  # yours from chapter 03 when it passes its check, else the finished one

# %% [markdown]
# The line above says whose `attention` this notebook uses. Yours is read from your notebook `03_attention` as you
# last saved it. If it does not pass yet, a finished one with the same interface stands in,
#
# `attention(q, k, v, mask=None)` → `(out, weights)`,
#
# so you can go on here and come back to it later.
#
# ## 1 · Where we are

# %%
from transformer_lab.widgets.architecture import architecture

architecture("multi-head attention")

# %% [markdown]
# ## 2 · Predict first
#
# Answer before you read on. There is no mark for it; a wrong guess makes the answer stick.

# %%
question("4-a")

# %% [markdown]
# ## 3 · The idea
#
# **Why one look is not enough.** The weights of a row are at least 0 and sum to 1. Take *the cat saw the dog* and
# the token *saw*: it wants to know who sees (*cat*) and who is seen (*dog*). One head can give each of them a
# weight of one half, and then it receives the *mean* of the two. From a mean nobody can tell who was who.
#
# **By hand.** Two tokens, width $d = 4$, and for simplicity the values are the inputs themselves:
#
# | token | its four features |
# |---|---|
# | 0 | 1 2 3 4 |
# | 1 | 5 6 7 8 |
#
# - *One head* with the weights (½, ½) receives the mean: **3 4 5 6**. Neither token is to be seen in it.
# - *Two heads* share the width: head 0 has features 0 and 1, head 1 has features 2 and 3. Let head 0 look at token 0
#   alone, weights (1, 0): it receives 1 2. Let head 1 look at token 1 alone, weights (0, 1): it receives 7 8.
#   Side by side: **1 2 7 8**. Both tokens are there, each in its place.
#
# That is the whole trick: cut the width into pieces, and let each piece choose its own weights.
#
# **The formula.** With $q$ [B, n_q, d], $k$ and $v$ [B, n_k, d] (B sequences, n tokens, width d) and h heads of width
# $d_k = d / h$:
#
# $$\text{head}_i = \text{attention}(q\,W^Q_i,\; k\,W^K_i,\; v\,W^V_i), \qquad
# \text{output} = [\text{head}_1, \dots, \text{head}_h]\; W^O$$
#
# Each $W^Q_i$, $W^K_i$, $W^V_i$ is a [d, d_k] matrix. Nobody keeps 3h small matrices, though: the h matrices
# $W^Q_i$ side by side **are** one [d, d] matrix. So one `nn.Linear(d, d)` makes the queries of all heads at once, and
# all that is left to do is to say which feature belongs to which head.
#
# | step | TODO | from | to |
# |---|---|---|---|
# | project | 4.2, 4.3 | q [B, n_q, d] and k, v [B, n_k, d] | the same shapes |
# | split | 4.1 | [B, n, d] | [B, h, n, d_k] |
# | attend, each head by itself | 4.3 | [B, h, n_q, d_k] and [B, h, n_k, d_k] | [B, h, n_q, d_k] |
# | merge | 4.4 | [B, h, n_q, d_k] | [B, n_q, d] |
# | mix the heads with $W^O$ | 4.5 | [B, n_q, d] | [B, n_q, d] |
#
# We write the two reshaping steps first, 4.1 and 4.4, since most mistakes happen there.
#
# ## 4 · Splitting: a puzzle with numbers
#
# To see where every number goes, let the number itself say where it comes from. Below, the number at token t,
# feature j is 10·t + j, so **26** is feature 6 of token 2.

# %%
from transformer_lab.widgets.ch04 import head_grid, head_merge, head_split, labels

x = labels(n=4, d=8)  # [1, 4, 8]: one sequence, four tokens, eight features
print(x[0])

# %%
question("4-b")

# %% [markdown]
# **TODO 4.1.** `split_heads(x, h)` takes x [B, n, d] to [B, h, n, d_k]. Head 0 gets features 0 … d_k − 1 **of every
# token**, head 1 the next d_k, and so on. When h does not divide d, say so: raise a `ValueError` that names
# both numbers. (Whoever reads the message will thank you. The message of `view` speaks of other things.)
#
# Two tools: `x.view(…)` gives a tensor another shape without moving a number, and `x.transpose(a, b)` exchanges two
# axes. For a hint run `hint("4.1")` in a cell of your own; every further call says more.


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
from grader import grade

grade("4.1", split_heads)
### END HIDDEN TESTS

# %% [markdown]
# The picture is drawn from **your** function. Left the input, one colour for each token. In the middle your heads. On the
# right what a bare `view` makes of it: the shape is the same, and no error is raised. Try h = 4. In which rows of the wrong one
# do you find number 26, and which token does that row claim to be?

# %%
head_split(split_heads)

# %% [markdown]
# **Why does the bare `view` go wrong?** Memory is one long line of numbers: all of token 0, then all of token 1, and so on.
# `view` cuts this line into pieces from the front. So "head 0, token 1" becomes the second *half of token 0*. The
# first cut must therefore keep each token whole, [B, n, h, d_k], and only then may the axes change places.
#
# ## 5 · Merging: the way back
#
# After the attention the heads' results stand in [B, h, n, d_k], and the next layer wants [B, n, d] again.
#
# **TODO 4.4.** `merge_heads(x)` undoes `split_heads`: last step first. One thing is new. `transpose` does not move
# numbers either; it only notes that the axes are to be read in another order. `view` then refuses, since it would have to
# read the line of memory in jumps. `reshape` copies the numbers into the new order when it must (`contiguous()` before
# `view` does the same).


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
from grader import grade

grade("4.4", merge_heads)
### END HIDDEN TESTS

# %%
head_merge(merge_heads)

# %% [markdown]
# Now there and back. The two functions must undo each other for every h:

# %%
with unfinished():
    for h in (1, 2, 4, 8):
        there = split_heads(x, h)
        same = torch.equal(merge_heads(there), x)
        print(f"h = {h}: {list(x.shape)} -> {list(there.shape)} -> back unchanged: {same}")

# %% [markdown]
# ### Break it on purpose
#
# Wrong reshapes raise no error, so you must know what they *do*. Six tokens attend to themselves and to what stands before them
# (a causal mask). We change one token at a time and ask which outputs move. Rows: the token that was changed;
# columns: the outputs, `#` where one moved. Before you run the cell: which triangle do you expect for the right pair?


# %%
def influence(split, merge, n=6, d=8, h=2):
    """Which outputs move when one input token changes, as rows of '#' and '.'."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(1, n, d, generator=generator)
    causal = torch.ones(n, n, dtype=torch.bool).tril()

    def output(x):
        heads = split(x, h)
        return merge(attention(heads, heads, heads, causal)[0])

    rows = []
    for token in range(n):
        changed = x.clone()
        changed[:, token] += 1 + torch.rand(d, generator=generator)
        moved = (output(changed) - output(x)).abs().amax(dim=(0, 2)) > 1e-6
        rows.append("".join("#" if yes else "." for yes in moved))
    return rows


def bare_split(x, h):
    return x.reshape(x.size(0), h, x.size(1), -1)  # the right shape, the wrong numbers


def bare_merge(x):
    return x.reshape(x.size(0), x.size(2), -1)


with unfinished():
    pairs = {
        "yours": (split_heads, merge_heads),
        "bare both ways": (bare_split, bare_merge),
        "bare split": (bare_split, merge_heads),
    }
    maps = {name: influence(*pair) for name, pair in pairs.items()}
    print("changed token   " + "".join(f"{name:<18}" for name in maps))
    for token in range(6):
        print(f"      {token}         " + "".join(f"{maps[name][token]:<18}" for name in maps))

# %% [markdown]
# - **Yours**: token j moves the outputs from j on. That is what a causal mask promises.
# - **Bare both ways**: the shapes cancel, so a model even trains. But each head holds half of the sentence: the last three
#   tokens never hear of the first three.
# - **Bare split, proper merge**: later tokens move earlier outputs. The model reads the future, so its training loss
# falls for the wrong reason, and it is useless for writing text, where there is no future to read.
#
# ## 6 · The module
#
# **TODO 4.2.** Four linear layers, each from d to d, with the names `W_q`, `W_k`, `W_v`, `W_o` (later chapters and
# `check` look for these names).
#
# **TODO 4.3.** Project, split, attend. `q`, `k` and `v` may be three different tensors: in the decoder the queries come
# from one sentence and the keys and values from another. So each is projected by its own layer and split by itself.
#
# A mask is boolean, True where a query **may** attend to a key. It can come in three forms, and the scores are [B, h, n_q, n_k]:
#
# | mask | meaning | fits the scores? |
# |---|---|---|
# | [n_q, n_k] | one for all sequences and heads | yes: missing axes are added in front |
# | [B, n_q, n_k] | one for each sequence | **no**: B would stand where h is. It needs an axis for the heads: [B, 1, n_q, n_k] |
# | four axes, such as [B, 1, 1, n_k] | says everything itself | yes |
#
# Keep the weights as `self.weights`, **detached**: pictures want to look at them, and a tensor that still hangs on the
# graph would keep the whole call in memory.
#
# **TODO 4.5.** Merge the heads and send them through $W^O$. Until here no head knew of any other; $W^O$ mixes them.


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
from grader import grade

grade("4.2", MultiHeadAttention)
### END HIDDEN TESTS

# %% [markdown]
# ### The silent trap: B = h
#
# A mask [B, n_q, n_k] without a head axis usually raises an error, and you mend it. But when there happen to be as many sequences
# as heads, it fits: sequence 0's mask is then used for *head* 0 of every sequence. Two sequences of three tokens, two
# heads; in sequence 0 the last token is padding, in sequence 1 nothing is:

# %%
with unfinished():
    generator = torch.Generator().manual_seed(0)
    heads = split_heads(torch.randn(2, 3, 4, generator=generator), 2)  # [B, h, n, d_k] = [2, 2, 3, 2]
    per_sequence = torch.ones(2, 3, 3, dtype=torch.bool)
    per_sequence[0, :, 2] = False
    masks = {"[B, n_q, n_k] as it is": per_sequence, "with a head axis": per_sequence[:, None]}
    for name, mask in masks.items():
        weights = attention(heads, heads, heads, mask)[1]
        received = weights[:, :, :, 2].sum(dim=-1)  # [B, h]: what the last token gets
        (a, b), (c, d) = received.tolist()
        print(f"{name:<24} sequence 0: {a:.2f} and {b:.2f}    sequence 1: {c:.2f} and {d:.2f}")

# %% [markdown]
# Summed over the three queries, this is how much weight the last token gets in head 0 and in head 1. In sequence 0 it must be 0 in both heads. As it is,
# head 1 attends to padding in sequence 0, and head 0 ignores a real word in sequence 1. No message tells you.
#
# ### √d_k, not √d
#
# A head's dot product runs over d_k features, so its standard deviation is about √d_k (chapter 03 measured it).
# Dividing by √d makes the scores too small, and the weights almost alike:

# %%
generator = torch.Generator().manual_seed(0)
d, h, n = 512, 8, 10
d_k = d // h
Q, K = (torch.randn(2000, n, d_k, generator=generator) for _ in range(2))  # 2000 heads of width 64
scores = Q @ K.transpose(1, 2)
for name, divisor in {"√d_k": math.sqrt(d_k), "√d": math.sqrt(d), "1": 1.0}.items():
    scaled = scores / divisor
    largest = scaled.softmax(dim=-1).amax(dim=-1).mean()
    print(f"divided by {name:<5} standard deviation {scaled.std():5.2f}   mean largest weight {largest:.2f}")
print(f"were all weights alike, each would be {1 / n:.2f}")

# %%
question("4-c")

# %% [markdown]
# ## 7 · What do more heads cost?
#
# **TODO 4.6.** `attention_parameters(d_model, bias=True)`: how many numbers does the module learn? There is no `h` among the
# arguments. Why?


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
from grader import grade

grade("4.6", attention_parameters)
### END HIDDEN TESTS

# %% [markdown]
# Your formula against your module, for d = 512. The last two columns count multiplications for n = 100 tokens: the four
# projections need 4·n·d², and the two products (scores, weighted sum) h · 2·n²·d_k = 2·n²·d together. h is gone
# from both. One thing does grow with h: the weights that are kept, h·n².

# %%
with unfinished():
    n, d = 100, 512
    print(f"by formula: {attention_parameters(d):,}")
    for h in (1, 8, 64):
        counted = sum(p.numel() for p in MultiHeadAttention(d, h).parameters())
        work = 4 * n * d**2 + h * 2 * n**2 * (d // h)
        print(
            f"h = {h:2}   parameters {counted:,}   multiplications {work / 1e6:.0f} million   weights {h * n * n:,}"
        )

# %% [markdown]
# ## 8 · Look into the heads
#
# The four heads below run in **your** module. Their weights were written by hand, so that you know each head's task:
# head 0 looks at the token before, head 1 at the same word, head 2 at the first token, head 3 at all tokens alike.
# The bars leave one head out (its columns of $W^O$ are set to 0) and show how far the output moves, in percent of its length.
#
# Predict, then look: head 2 has the sharpest picture of all. How much does the output lose without it?

# %%
head_grid(MultiHeadAttention)

# %% [markdown]
# Head 2 looks sharply at the first token, and the output hardly notices when it is gone: $W^O$ takes next to nothing from it.
# Head 3 shows no pattern at all, and without it the output moves by almost a third. **A weight says what a head looks at.
# It does not say what the model does with it.** To learn that, leave the head out and measure.
#
# The second sentence is Chinese, *the cat sees the dog, the dog runs*. Find 狗 (dog) in head 1: each of the two shares its weight
# between them.

# %%
question("4-d")

# %% [markdown]
# ## 9 · Meet torch's own
#
# `torch.nn.MultiheadAttention` is the same block with other habits:
#
# | | yours | torch |
# |---|---|---|
# | layers | `W_q`, `W_k`, `W_v` | one matrix `in_proj_weight` [3d, d]: the rows of W_q, then W_k's, then W_v's; `in_proj_bias` [3d] likewise |
# | output | `W_o` | `out_proj`, an `nn.Linear` |
# | heads, width | `h`, `d_model` | `num_heads`, `embed_dim` |
# | a boolean mask | True: **may** attend | True: **must not** attend |
# | result | the output | a pair: output and weights, these averaged over the heads unless told otherwise |
# | axes | [B, n, d] | [n, B, d] unless made with `batch_first=True` |
#
# **TODO 4.7.** `from_torch(mha)` returns your module with torch's weights, so that both give the same. A module made with `bias=False`
# has `None` for both biases; yours are then 0. Copy inside `torch.no_grad()` with `tensor.copy_(other)`, which fills a
# parameter without leaving a trace in the graph. `tensor.chunk(3)` cuts the first axis into three.
#
# This stands on your `MultiHeadAttention`. If it does not pass yet, run `from transformer_lab.parts import MultiHeadAttention` in
# a cell of its own right here, and delete the cell when yours works.


# %% todo="4.7"
def from_torch(mha):
    """A MultiHeadAttention that gives what the torch.nn.MultiheadAttention `mha` gives."""
    own = MultiHeadAttention(mha.embed_dim, mha.num_heads).to(mha.in_proj_weight)  # same dtype and device
    with torch.no_grad():
        # TODO 4.7: copy the three blocks of in_proj_weight and in_proj_bias, then out_proj; biases of 0 for a None
        ### BEGIN SOLUTION
        weights = mha.in_proj_weight.chunk(3)  # [3d, d] -> three of [d, d]
        biases = (torch.zeros(3 * mha.embed_dim) if mha.in_proj_bias is None else mha.in_proj_bias).chunk(3)
        for i, layer in enumerate((own.W_q, own.W_k, own.W_v)):
            layer.weight.copy_(weights[i])
            layer.bias.copy_(biases[i])
        own.W_o.weight.copy_(mha.out_proj.weight)
        own.W_o.bias.copy_(torch.zeros(1) if mha.out_proj.bias is None else mha.out_proj.bias)
        ### END SOLUTION
    return own


# %% test="4.7" points=5
check("4.7", from_torch)
### BEGIN HIDDEN TESTS
from grader import grade

grade("4.7", from_torch)
### END HIDDEN TESTS

# %% [markdown]
# See it with your own eyes, once with the sign turned (`~`, "not") and once as a newcomer writes it. The mask is causal: no token
# looks ahead.

# %%
with unfinished():
    torch.manual_seed(4)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    own = from_torch(theirs)
    x = torch.randn(2, 5, 12)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()  # True: may attend
    with torch.no_grad():
        out = own(x, x, x, causal)
        for name, mask in {"attn_mask=~causal": ~causal, "attn_mask=causal": causal}.items():
            other, _ = theirs(x, x, x, attn_mask=mask)
            equal = torch.allclose(out, other, atol=1e-6)
            print(
                f"{name:<18} the same as yours: {equal}   NaN in torch's output: {bool(other.isnan().any())}"
            )

# %% [markdown]
# With the sign the wrong way round every token may look only *ahead*. The last one has nothing ahead of it: all its scores are
# −∞, and softmax gives NaN.
#
# ## 10 · Review

# %%
question("4-e")

# %%
question("4-f")

# %%
question("4-g")

# %%
question("4-h")

# %% [markdown]
# ## 11 · To think about
#
# <details><summary>Do heads specialise by themselves?</summary>
#
# In trained models some do. Published studies found heads that look at the token before, at the verb's object, or at an earlier
# occurrence of the same token. Many others show nothing that a person would name, and a good share can be left out after training
# with little loss. Training asks only that the whole works; nothing asks for one task a head.
# </details>
#
# <details><summary>Then why not fewer heads from the start?</summary>
#
# With h = 1 each token has one row of weights a layer, and section 3 showed what that costs. With very many heads d_k becomes small: a
# head of width 4 cannot tell many keys apart. The original paper compared numbers of heads at equal cost: one head was clearly
# worse than eight, and 32 heads were slightly worse again. Widths d_k of 64 to 128 are usual.
# </details>
#
# <details><summary>Do all heads need keys and values of their own?</summary>
#
# While a model writes text it keeps the keys and values of all earlier tokens, 2·n·d numbers for every layer, and reading them
# takes most of the time. *Multi-query attention* lets all heads share one K and one V; *grouped-query attention* lets groups
# of heads share them. With h = 32 query heads and 8 key heads, the store shrinks to a quarter. In `split_heads` only the number of
# heads for K and V changes.
# </details>
#
# <details><summary>May I show a heat map of weights as the explanation of an answer?</summary>
#
# Be careful. The weights say where a head read, not what it read there (W_v decides), nor what became of it (W_o and all later
# layers decide). Other weights can lead to the same output. Leaving a head or a token out and measuring what changes is
# stronger evidence.
# </details>
#
# ## 12 · What you built
#
# `split_heads` and `merge_heads`, which move no number to a wrong token; `MultiHeadAttention`, with three kinds of mask and the same
# parameters whatever h is; and a check that it equals `torch.nn.MultiheadAttention`, number for number.
#
# Next, in **05 · Add & Norm**: attention replaces what a token knew by what it has gathered. The residual path keeps the old and
# adds the new, and a norm keeps the sum in bounds.
