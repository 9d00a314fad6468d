# %% [markdown]
# # 03 · Attention
#
# Every token now knows *what* it is and *where* it is. In this chapter tokens start to look at each other.
#
# You will build one attention head from four short lines, write its softmax by hand, give it masks, and measure why its
# scores are divided by a square root. Plan for about 90 minutes.

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, question, unfinished

# %% [markdown]
# ## Where we are
#
# The lit block sits inside every layer, on both sides of the machine. It is the only place where tokens exchange anything.

# %%
from transformer_lab.widgets.architecture import architecture

architecture("attention")

# %% [markdown]
# ## Predict first
#
# In a moment, a token will give every other token a **score**. Softmax turns scores into **weights**, which are positive
# and sum to 1: the weight of key $j$ is $e^{s_j} / \sum_m e^{s_m}$. Three keys have the scores 2, 1 and 0.
#
# * What happens to the largest weight if every score is **doubled**?
# * What happens if 5 is **added** to every score?
#
# Decide both, then run the cell.

# %%
scores = torch.tensor([2.0, 1.0, 0.0])
for name, changed in [("as they are", scores), ("doubled", 2 * scores), ("5 added", scores + 5)]:
    print(f"{name:12}", [round(w, 3) for w in changed.softmax(-1).tolist()])

# %% [markdown]
# Doubling makes the winner win more: softmax reacts to the **size** of the differences. Adding a constant changes nothing:
# it multiplies top and bottom by the same $e^5$. Both facts come back below, the first as the reason for $\sqrt{d}$, the second
# as the way to keep softmax from overflowing.

# %% [markdown]
# ## The idea: a soft look-up
#
# In "the cat slept because **it** was tired", the row of "it" should take in something of "cat". A fixed rule ("take the word
# four places back") would fail in the next sentence. So each token decides by itself, from what it is, whom to ask.
#
# Each token plays three roles, and each role has its own learned linear map:
#
# | | made by | it says |
# |---|---|---|
# | **query** $q_i$ | $W_q$ | "this is what I am looking for" |
# | **key** $k_j$ | $W_k$ | "this is what I can be found by" |
# | **value** $v_j$ | $W_v$ | "this is what I give to whoever takes from me" |
#
# A query fits a key when their dot product $q_i \cdot k_j$ is large. A Python `dict` returns the value of the *one* key that fits
# exactly; attention returns a **mixture of all values**, most from the keys that fit best:
#
# $$Q = x W_q^\top + b_q, \quad K = x W_k^\top + b_k, \quad V = x W_v^\top + b_v, \qquad
# \text{out} = \underbrace{\operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d}}\right)}_{\text{weights}} V$$
#
# | symbol | meaning | shape |
# |---|---|---|
# | $x$ | $B$ sentences of $n$ tokens, $d$ numbers each | $[B, n, d]$ |
# | $Q, K, V$ | queries, keys, values: one row for each token | $[B, n, d]$ |
# | $Q K^\top$ | scores: row $i$, column $j$ holds $q_i \cdot k_j$ | $[B, n, n]$ |
# | weights | softmax of each **row** of the scores: every row sums to 1 | $[B, n, n]$ |
# | out | row $i$ is $\sum_j \text{weight}_{ij}\, v_j$ | $[B, n, d]$ |
#
# Read the table of weights like this: **row $i$ is token $i$ looking at all; column $j$ is all looking at token $j$.** A row sums to 1
# because each token has one unit of attention to give away. A column may sum to anything: some tokens are popular, some are not.
#
# ### By hand
#
# The sentence is "I love deep learning". Suppose the scores, already divided by $\sqrt d$, are
#
# | asks ↓ asked → | I | love | deep | learning |
# |---|---|---|---|---|
# | I | 2.0 | 1.0 | 0.5 | 0.3 |
# | love | 0.8 | 2.2 | 1.1 | 0.4 |
# | deep | 0.3 | 1.5 | 2.0 | 0.9 |
# | learning | 0.2 | 0.7 | 1.3 | 2.5 |
#
# and that no token may look at a later one (a *causal* mask, as in a model that writes from left to right). Then "love" sees only
# "I" and itself: $e^{0.8} = 2.23$ and $e^{2.2} = 9.03$, together $11.25$, so its weights are
# $2.23 / 11.25 = 0.20$ and $9.03 / 11.25 = 0.80$.
#
# Now you: "deep" sees three tokens with $e^{0.3} = 1.35$, $e^{1.5} = 4.48$, $e^{2.0} = 7.39$. What are its three weights?
# You will see them in the picture below.

# %% [markdown]
# ## Your turn: TODO 3.1 to 3.4
#
# One line each, two or three in 3.1. The check tells you after each TODO which rows pass already.
#
# * **3.1** three layers in `__init__`, with exactly the names `W_q`, `W_k`, `W_v` (later chapters look for them); then $Q$, $K$, $V$ in `forward`
# * **3.2** the scores $Q K^\top / \sqrt d$
# * **3.3** softmax over the keys
# * **3.4** the weighted sum of the values
#
# Worth knowing about PyTorch here:
#
# * `a @ b` multiplies the **last two** axes as matrices and treats all axes in front as a batch: `[B, n, d] @ [B, d, n]` gives `[B, n, n]`.
# * `t.transpose(-2, -1)` swaps the last two axes. `t.T` would turn around all of them, and `reshape` swaps nothing: it only
#   cuts the same numbers into other rows.
# * `dim=-1` means "along the last axis".
#
# Stuck? Run `hint("3.1")`, `hint("3.2")`, … Every call goes one step further.


# %% todo="3.1"
class SelfAttention(nn.Module):
    """One attention head: each token of x collects from all tokens of its sentence."""

    def __init__(self, d_model):
        super().__init__()
        # TODO 3.1: three linear layers W_q, W_k and W_v, each from d_model to d_model
        ### BEGIN SOLUTION
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        ### END SOLUTION

    def forward(self, x):  # x: [B, n, d]
        # TODO 3.1, second half: Q, K and V from x                    each [B, n, d]
        ### BEGIN SOLUTION
        Q, K, V = self.W_q(x), self.W_k(x), self.W_v(x)
        ### END SOLUTION

        # TODO 3.2: the score of every query with every key, divided by √d   [B, n, n]
        ### BEGIN SOLUTION
        scores = Q @ K.transpose(-2, -1) / math.sqrt(K.size(-1))
        ### END SOLUTION

        # TODO 3.3: the weights: softmax over the keys                       [B, n, n]
        ### BEGIN SOLUTION
        weights = torch.softmax(scores, dim=-1)
        ### END SOLUTION

        # TODO 3.4: return the weighted sum of the values                    [B, n, d]
        ### BEGIN SOLUTION
        return weights @ V
        ### END SOLUTION


# %% test="3.1" points=8
check("3.1", SelfAttention)
### BEGIN HIDDEN TESTS
from grader import grade

grade("3.1", SelfAttention)
### END HIDDEN TESTS

# %% [markdown]
# ### What your layer does to a shuffled sentence
#
# *Predict:* five tokens go through your layer; then the same five in reverse order. How are the two outputs related?

# %%
with unfinished():
    torch.manual_seed(0)
    layer = SelfAttention(8)
    tokens = torch.randn(1, 5, 8)
    with torch.no_grad():
        there, back = layer(tokens), layer(tokens.flip(1))
    difference = (there - back.flip(1)).abs().max().item()
    print("the same rows, in reverse order:", difference < 1e-5)
    print("parameters:", sum(p.numel() for p in layer.parameters()), "= 3 · (8·8 + 8)")

# %% [markdown]
# The same rows in reverse order: your layer sees a *set* of tokens. That is why chapter 02 wrote the position into the numbers.
#
# Note also what the number of parameters does **not** contain: $n$. The same three matrices serve a sentence of 5 tokens and one of 500.
#
# ### Break it on purpose
#
# Copy your class into a new cell under another name, make one change, and run `check("3.1", YourCopy)`. Predict the verdict first.
#
# 1. Softmax over `dim=-2`. What sums to 1 now, and who decides how much is taken?
# 2. The scores without the division. Does the row "equal scores" still pass? Why?
# 3. `K.reshape(...)` to `[B, d, n]` in place of the transpose. The shapes fit, so nothing complains. What is wrong?

# %% [markdown]
# ## Softmax by hand
#
# The formula $e^{x_j} / \sum_m e^{x_m}$ is right on paper and dangerous in floating point. The largest float32 is about
# $3.4 \cdot 10^{38}$, and $e^{89}$ is already more:

# %%
large = torch.tensor([1000.0, 999.0, 998.0])
print("exp:     ", large.exp())
print("quotient:", large.exp() / large.exp().sum())

# %% [markdown]
# `inf / inf` is `nan`, "not a number", and one NaN spreads through everything that touches it. The cure is the second fact from the
# start: adding a constant to all scores changes no weight. So subtract the **largest** one:
#
# $$\frac{e^{x_j}}{\sum_m e^{x_m}} = \frac{e^{x_j - c}}{\sum_m e^{x_m - c}}, \qquad c = \max_m x_m$$
#
# Now the largest exponent is exactly 0. Nothing can overflow, and the sum is at least 1, so nothing is divided by 0 either.
# Numbers far below the maximum become 0, which is right to within rounding.
#
# ### TODO 3.5
#
# `stable_softmax(x, dim)` works along any axis. By hand means: with `exp`, a maximum, a sum and a division; the check refuses
# the library's softmax. For a maximum or a sum that keeps its axis (with length 1, so that it lines up with `x`), pass `keepdim=True`.


# %% todo="3.5"
def stable_softmax(x, dim=-1):
    """exp(x) / Σ exp(x) along `dim`, finite for numbers of any size. Same shape as x."""
    # TODO 3.5: take the maximum off along dim, then exp, then divide by the sum along dim
    ### BEGIN SOLUTION
    shifted = x - x.amax(dim=dim, keepdim=True)
    e = torch.exp(shifted)
    return e / e.sum(dim=dim, keepdim=True)
    ### END SOLUTION


# %% test="3.5" points=4
check("3.5", stable_softmax)
### BEGIN HIDDEN TESTS
from grader import grade

grade("3.5", stable_softmax)
### END HIDDEN TESTS

# %% [markdown]
# ## Attention as a function, with a mask
#
# The layers $W_q, W_k, W_v$ are one matter; what happens to $q$, $k$ and $v$ is another. From now on we keep them apart, since later
# chapters feed the same function from different places: several heads (chapter 04), or queries from one sentence and keys from
# another (chapter 07). So nothing forces the sizes to be equal:
#
# | | shape | |
# |---|---|---|
# | `q` | `[..., n_q, d_k]` | $n_q$ queries |
# | `k` | `[..., n_k, d_k]` | $n_k$ keys of the **same** width as the queries: they meet in a dot product |
# | `v` | `[..., n_k, d_v]` | one value for **each key**, of any width $d_v$ |
# | `out` | `[..., n_q, d_v]` | one mixture for each query |
# | `weights` | `[..., n_q, n_k]` | each row sums to 1 |
#
# The dots stand for any axes in front: none, a batch, or a batch and heads. The scale is $\sqrt{d_k}$, the width of what is
# multiplied, not that of the values.
#
# ### Masks
#
# Some keys must not be seen: padding, which only fills the batch, and in a decoder every later token, which is the answer.
# In this course a mask is boolean and **True means "may attend"**. (Some functions of `torch.nn` mean the opposite. Chapter 04 lets you run into that.)
#
# A hidden key must get the weight 0 **and** the others must still sum to 1. Both come for free if its score becomes $-\infty$
# *before* softmax, because $e^{-\infty} = 0$:
#
# $$[\,0.8,\; 2.2,\; -\infty,\; -\infty\,] \;\to\; \text{softmax} \;\to\; [\,0.20,\; 0.80,\; 0,\; 0\,]$$
#
# A mask may have fewer axes than the scores, or axes of length 1: it *broadcasts*. `[n_q, n_k]` serves all sentences alike;
# `[B, 1, n_k]` gives each sentence its own row, used for all its queries.
#
# ### TODO 3.6
#
# `t.masked_fill(where, number)` returns a copy of `t` that holds `number` wherever `where` is True; `~mask` turns True and False around.
# From here on `torch.softmax` is yours to use.


# %% todo="3.6"
def attention(q, k, v, mask=None):
    """Return out [..., n_q, d_v] and weights [..., n_q, n_k]; mask: True where a query may attend."""
    # TODO 3.6: scores, mask, softmax, weighted sum; return out and weights
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
from grader import grade

grade("3.6", attention)
### END HIDDEN TESTS

# %% [markdown]
# ### Step by step
#
# The picture runs **your** function on the example from above. Its keys are chosen so that the scores come out as in the table
# ($d_k = 4$, so step 1 shows twice the numbers of step 2). Go through the steps with the arrow keys; change the query; take the mask off.
#
# *Did you get 0.10, 0.34 and 0.56 for "deep"?*

# %%
from transformer_lab.widgets.ch03 import steps

steps(attention)

# %% [markdown]
# Three things to find:
#
# 1. Which row never changes when the mask goes on or off? Why that one?
# 2. Without the mask, add up a *column* of the weights in step 4. Which token is the most popular?
# 3. In step 5 the output of "I" under the mask is exactly the value of "I". Why must that be so?

# %% [markdown]
# ### The same in numbers

# %%
score_table = torch.tensor([[2, 1, 0.5, 0.3], [0.8, 2.2, 1.1, 0.4], [0.3, 1.5, 2, 0.9], [0.2, 0.7, 1.3, 2.5]])
may_attend = torch.ones(4, 4).tril().bool()  # True on and below the diagonal
with unfinished():
    # one-hot keys of width 4: the scores are the queries' own numbers, divided by √4 = 2
    _, causal_weights = attention(2 * score_table, torch.eye(4), torch.eye(4), may_attend)
    for row in causal_weights.tolist():
        print([f"{w:.2f}" for w in row])

# %% [markdown]
# ### A mask to play with
#
# Four words and two cells of padding. The padding's keys have rather large scores, as nothing keeps them from it.
#
# * Set the mask to *padding*, then move it **after** softmax (weights × mask). What do the rows sum to, and where did the rest go?
# * Which mask stops "the" from looking at "cat"?
# * The two `<pad>` **rows** still attend to words. Does that do any harm? (Who reads the output of a padding token?)

# %%
from transformer_lab.widgets.ch03 import mask_editor

mask_editor(attention)

# %% [markdown]
# Applied after softmax, the mask comes too late: the hidden keys have already taken their share of the 1, and it is lost. Dividing by
# the new sum repairs it on paper, but not in floats: if a hidden key has a huge score, all others have already become 0, and 0 / 0 is NaN.
# (The check has a row for that: "hidden but huge".)

# %% [markdown]
# ### What does a query see that may see nothing?
#
# Now switch on *first query may see nothing*. All its scores are $-\infty$: softmax has nothing to share its 1 among.
# Many programs therefore use a large negative number such as $-10^9$ in place of $-\infty$. *Predict:* what does each give for a row in
# which **all** four keys are hidden, and what happens to $-10^9$ in half precision (float16), whose largest number is 65504?

# %%
for name, fill, dtype in [
    ("-inf, float32", -math.inf, torch.float32),
    ("-1e9, float32", -1e9, torch.float32),
    ("-1e9, float16", -1e9, torch.float16),
    ("-1e9, bfloat16", -1e9, torch.bfloat16),
]:
    hidden_row = torch.tensor([fill] * 4).to(dtype)
    print(f"{name:15} each score {hidden_row[0].item():>12.5g}   weights {hidden_row.softmax(-1).tolist()}")

# %% [markdown]
# * With $-\infty$ the row is NaN. That is loud, and it spreads: even a loss that multiplies the row by 0 stays NaN.
# * With $-10^9$ in float32 the row is **uniform**: the query takes the plain mean of all the keys that it must *not* see. That is silent.
# * In float16 the number $-10^9$ does not exist: rounding makes it $-\infty$, and the row is NaN again. (`masked_fill` itself refuses the number
#   there. Try it: set *numbers* to float16 in the picture, if your function uses $-10^9$.)
# * bfloat16 has the range of float32 with fewer digits, so it behaves like float32.
#
# Neither result is right, because there is no right one. Either make sure that such a row cannot arise (under a causal mask each token sees at
# least itself), or make sure that nobody uses it. Our check accepts both ways.

# %% [markdown]
# ## Why divide by $\sqrt{d_k}$?
#
# Let the $d_k$ numbers of $q$ and of $k$ be independent, with mean 0 and variance 1, roughly as at the start of training. The score is a sum:
#
# $$q \cdot k = \sum_{i=1}^{d_k} q_i k_i$$
#
# Each product has mean $E[q_i k_i] = E[q_i]\,E[k_i] = 0$ and variance
#
# $$\operatorname{Var}(q_i k_i) = E[q_i^2 k_i^2] - 0^2 = E[q_i^2]\,E[k_i^2] = 1 \cdot 1 = 1.$$
#
# Variances of independent terms add up, so $\operatorname{Var}(q \cdot k) = d_k$: the scores scatter by $\sqrt{d_k}$. And since
# $\operatorname{Var}(a X) = a^2 \operatorname{Var}(X)$,
#
# $$\operatorname{Var}\!\left(\frac{q \cdot k}{\sqrt{d_k}}\right) = \frac{1}{d_k} \cdot d_k = 1.$$
#
# Dividing by $d_k$ itself would give the variance $1 / d_k$: all scores nearly equal, all weights nearly the same.
#
# ### TODO 3.7: measure it
#
# Draw `samples` pairs of vectors with `torch.randn(samples, d_k, generator=generator)` (first $q$, then $k$), take their dot products, and return two
# floats: the variance of $q \cdot k$ and that of $q \cdot k / \sqrt{d_k}$. `t.var()` is the variance, `.item()` makes a float of one number.
#
# A `torch.Generator` is a source of chance of its own: whoever passes one with a fixed seed gets the same numbers again. With `None` torch uses its common source.


# %% todo="3.7"
def score_variance(d_k, samples, generator=None):
    """Draw `samples` pairs q, k of width d_k; return the variances of q·k and of q·k / √d_k."""
    # TODO 3.7: draw q and k, one score for each pair, and both variances
    ### BEGIN SOLUTION
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=-1)  # [samples]
    return scores.var().item(), (scores / math.sqrt(d_k)).var().item()
    ### END SOLUTION


# %% test="3.7" points=4
check("3.7", score_variance)
### BEGIN HIDDEN TESTS
from grader import grade

grade("3.7", score_variance)
### END HIDDEN TESTS

# %% [markdown]
# The check averages 180 runs of 330 samples and allows 4 %. Chance alone moves that average by about 0.6 %, so it does not fail a right answer.
#
# Grey lines: what the derivation says. Points: what **your** function measured. Set *samples* to 10 to see how much chance is left.

# %%
from transformer_lab.widgets.ch03 import variances

variances(score_variance)

# %% [markdown]
# ## What large scores do to learning
#
# Take two keys with the scores $s$ and 0. The first key's weight is $w = 1 / (1 + e^{-s})$, and when $s$ moves, $w$ moves by
# $\partial w / \partial s = w\,(1 - w)$. For any number of keys it is $\partial w_i / \partial s_j = w_i(\delta_{ij} - w_j)$, where
# $\delta_{ij}$ is 1 for $i = j$ and else 0.

# %%
for s in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
    w = 1 / (1 + math.exp(-s))
    print(f"s = {s:4.0f}   weight {w:.5f}   gradient {w * (1 - w):.1e}")

# %% [markdown]
# At $s = 16$, which is one standard deviation of an unscaled score with $d_k = 256$, a ten-millionth of the gradient gets through. Softmax is
# **saturated**: it has made up its mind, and no error can change it. The layers $W_q$ and $W_k$ get their gradient only through these scores, so they stop learning.
#
# The picture uses **your** `stable_softmax` on random queries and keys. Left: the scores that enter softmax. Middle: the eight weights of one query.
# Right: how strongly the largest weight still reacts to the scores, for five widths.
#
# * It opens without the division. Switch it on and watch all three panels.
# * The blue curve hardly depends on the width. Which line of the derivation says why?
# * *Temperature* divides the scores once more. Which temperature, without the division, imitates $\sqrt{d_k}$ for $d_k = 64$?

# %%
from transformer_lab.widgets.ch03 import saturation

saturation(stable_softmax)

# %% [markdown]
# ### What it costs
#
# The table of scores has $n^2$ entries, and each takes $d$ multiplications: $n^2 d$. The weighted sum takes $n^2 d$ more. The three layers take $3 n d^2$.

# %%
d = 512
print("      n    layers 3nd²   scores + sum 2n²d   table n² in float32")
for n in (128, 768, 4096, 32768):
    print(f"{n:7}    {3 * n * d * d:11.1e}   {2 * n * n * d:17.1e}   {4 * n * n / 2**20:13,.1f} MiB")

# %% [markdown]
# Up to $n = 1.5\,d$ (here 768) the layers cost more; beyond it the square takes over. Twice the length is four times the table. That is the price
# of letting every token reach every other in **one** step, where an RNN would need up to $n$ steps.

# %% [markdown]
# ## Review
#
# Choose an answer; each one tells you what it means.

# %%
question("3-a")

# %%
question("3-b")

# %%
question("3-c")

# %%
question("3-d")

# %%
question("3-e")

# %%
question("3-f")

# %%
question("3-g")

# %%
question("3-h")

# %% [markdown]
# ## Think further
#
# <details><summary><b>The table of weights needs n² numbers. Must it ever exist?</b></summary>
#
# No. *FlashAttention* computes exactly the same output block by block: it keeps, for each query, the largest score so far, the sum of
# exponentials so far and the mixture so far, and corrects all three whenever a larger score turns up. That is your stable softmax, done while the keys
# stream by. The multiplications are still $n^2 d$, but the table never leaves the fast memory on the chip, so memory grows with $n$, and
# in practice the time falls too. *Sparse* attention goes further and leaves pairs out (a window around each token, a few global tokens):
# less work, but no longer the same function.
# </details>
#
# <details><summary><b>What else keeps softmax out of saturation?</b></summary>
#
# Anything that bounds the scores: normalise queries and keys before the product (*QK-norm*) and learn one scale; squash the scores with a
# tanh before softmax (*soft-capping*); start with small weights in $W_q$ and $W_k$. Division by $\sqrt{d_k}$ is right for the *start* of training, when the
# numbers are independent. Later the model may grow its weights and saturate on purpose: a sharp choice is sometimes what it needs.
# </details>
#
# <details><summary><b>Why three matrices? What would one matrix for queries and keys change?</b></summary>
#
# With $W_q = W_k$ the score of $i$ with $j$ equals that of $j$ with $i$, and the score of a token with itself is a square, so it tends to be the largest.
# "it" may want to look at "cat" without "cat" wanting to look at "it": asking and being found are different roles.
# And a token can be easy to find by one property and hand over quite another; hence a separate $W_v$.
# </details>
#
# <details><summary><b>Is a fully hidden row ever normal?</b></summary>
#
# In a batch where one sentence is empty, or with padding on the left under a causal mask, yes. Programs differ: −∞ by hand gives NaN, −1e9 gives the mean,
# and some fused kernels return zeros. The safe way is to decide it yourself: let a padding query see itself, and keep its row out of the loss by *selecting* the real rows.
# Multiplying the loss by 0 does not help: NaN · 0 is NaN.
# </details>
#
# <details><summary><b>Softmax never gives exactly 0. Is that a flaw?</b></summary>
#
# Without a mask every key gets a little. With thousands of keys many small weights add up and blur the mixture; and a head that has found nothing useful must still
# give its 1 to somebody: often the first token or a comma. The gradient likes it, though: a key that gets a little can still earn more.
# </details>

# %% [markdown]
# ## What you built
#
# * `SelfAttention`: queries, keys, values, scores, softmax, weighted sum;
# * a softmax that survives any numbers, and the reason why subtracting the maximum is free;
# * `attention`, with masks that hide before softmax, for any number of leading axes;
# * the measured reason for $\sqrt{d_k}$: variance 1, and a gradient that stays alive.
#
# One head forms one table of weights: one kind of relation at a time. Next, in **04 · Multi-head attention**, several heads look at the same sentence in
# parallel, for the same price.
