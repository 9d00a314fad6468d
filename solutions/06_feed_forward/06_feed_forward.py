# %% [markdown]
# # 06 · The feed-forward network and the encoder
#
# Attention lets tokens exchange information. It does little with what it collects: a weighted sum of values, and that is all.
# The **feed-forward network** is where a token thinks about what it has heard, alone. With it the last block is there, and in the second half of
# this chapter you put the blocks together: an encoder layer, then the whole encoder.
#
# **Where we are.** The lit block stands in every layer of both halves, after the attention.

# %% setup=true
import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import check, hint, question, unfinished

# Finished parts of earlier chapters. Your own fit in the same place:
#   from transformer_lab import mine
#   MultiHeadAttention = mine.load("MultiHeadAttention")
from transformer_lab.parts import MultiHeadAttention, PostNorm, PreNorm

# %%
from transformer_lab.widgets.architecture import architecture

architecture("feed-forward")

# %% [markdown]
# ## Before you read on
#
# An encoder layer holds an attention (four matrices) and a feed-forward network (two matrices).
#
# 1. Which of the two holds more parameters in the model of the original paper: attention or feed-forward? By which factor?
# 2. You change one token of a sentence and send the sentence through the feed-forward network. Which outputs change?
#
# Write down your answers. Both are measured below.

# %% [markdown]
# ## 1 · Widen, bend, narrow
#
# $$\mathrm{FFN}(x) = \mathrm{ReLU}(x\,W_1^{\mathsf T} + b_1)\,W_2^{\mathsf T} + b_2 \qquad\qquad \mathrm{ReLU}(z) = \max(0, z)$$
#
# | symbol | in code | shape | |
# |---|---|---|---|
# | $x$ | `x` | $[B, n, d]$ | $B$ sentences, $n$ tokens, $d$ features |
# | $W_1, b_1$ | `linear1` | $[d_{ff}, d]$ and $[d_{ff}]$ | widens every token from $d$ to $d_{ff}$ numbers, usually $d_{ff} = 4d$ |
# | ReLU | | $[B, n, d_{ff}]$ | makes negative numbers 0: the bend |
# | $W_2, b_2$ | `linear2` | $[d, d_{ff}]$ and $[d]$ | narrows back to $d$, so that Add & Norm can add $x$ |
#
# `nn.Linear(a, b)` holds a weight of shape $[b, a]$ and a bias $[b]$, and works on the last axis whatever stands in front. So the same two matrices treat every
# token of every sentence, each by itself. This is what *position-wise* means.
#
# **By hand.** Take $d = 2$, $d_{ff} = 3$ and
#
# $$W_1 = \begin{bmatrix}1&0\\0&1\\1&1\end{bmatrix},\quad b_1 = [0, 0, 0],\quad W_2 = \begin{bmatrix}1&0&2\\0&1&1\end{bmatrix},\quad b_2 = [0.5, 0].$$
#
# | token $x$ | widened | bent | narrowed |
# |---|---|---|---|
# | $[1, -2]$ | $[1, -2, -1]$ | $[1, 0, 0]$ | $[1.5, 0]$ |
# | $[-1, 2]$ | $[-1, 2, 1]$ | $[0, 2, 1]$ | $[2.5, 3]$ |
#
# The second token is the first with its signs turned. A linear map would have turned the signs of the output, too (apart from $b_2$). This one did not: the bend did that.
# **Why the bend matters:** two linear maps in a row are one linear map. Without it, $d_{ff}$ could be a million and nothing would be gained.
#
# ### TODO 6.1, 6.2 and 6.3
#
# Stuck? Run `hint("6.1")` in a new cell: a question first, then the shapes, then pseudocode.


# %% todo="6.1"
class FeedForward(nn.Module):
    """Widens every token to d_ff, bends with ReLU, narrows back to d_model."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        # TODO 6.1: self.linear1, from d_model features to d_ff
        ### BEGIN SOLUTION
        self.linear1 = nn.Linear(d_model, d_ff)
        ### END SOLUTION

        # TODO 6.2: self.linear2, from d_ff features back to d_model
        ### BEGIN SOLUTION
        self.linear2 = nn.Linear(d_ff, d_model)
        ### END SOLUTION

    def forward(self, x):  # [..., d_model]
        # TODO 6.3: widen, ReLU, narrow   [..., d_model]
        ### BEGIN SOLUTION
        inner = torch.relu(self.linear1(x))  # [..., d_ff]
        return self.linear2(inner)
        ### END SOLUTION


# %% test="6.1" points=5
check("6.1", FeedForward)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.1", FeedForward)
### END HIDDEN TESTS

# %% [markdown]
# Your block on the example by hand:

# %%
with unfinished():
    block = FeedForward(2, 3)
    with torch.no_grad():
        block.linear1.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        block.linear1.bias.zero_()
        block.linear2.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]))
        block.linear2.bias.copy_(torch.tensor([0.5, 0.0]))
    print(block(torch.tensor([[1.0, -2.0], [-1.0, 2.0]])).tolist())

# %% [markdown]
# ## 2 · Softer bends: GELU
#
# ReLU has a corner at 0, and to the left of it its gradient is exactly 0: a unit that is negative for every token learns nothing more.
# **GELU** (BERT, GPT-2) has no corner. It weighs $x$ by $\Phi(x)$, the share of a bell curve that lies to the left of $x$:
#
# $$\mathrm{gelu}(x) = x\,\Phi(x), \qquad \Phi(x) = \tfrac12\Big(1 + \mathrm{erf}\big(x/\sqrt2\big)\Big)$$
#
# erf is the *error function*, the usual name for the area under a bell curve; `torch.erf` computes it number by number.
#
# | $x$ | −2 | −0.5 | 0 | 0.5 | 2 |
# |---|---|---|---|---|---|
# | $\Phi(x)$ | 0.023 | 0.309 | 0.5 | 0.691 | 0.977 |
# | $\mathrm{gelu}(x)$ | −0.046 | −0.154 | 0 | 0.346 | 1.954 |
#
# Far to the right GELU is $x$, far to the left 0, as ReLU is. In between it bends gently, and it dips below 0.
# There are cheaper formulas with tanh or a sigmoid; you build the exact one.
#
# ### TODO 6.4


# %% todo="6.4"
def gelu(x):
    """x times the share of a bell curve that lies to the left of x; any shape."""
    # TODO 6.4: x · Φ(x), with torch.erf and no library gelu
    ### BEGIN SOLUTION
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    ### END SOLUTION


# %% test="6.4" points=3
check("6.4", gelu)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.4", gelu)
### END HIDDEN TESTS

# %%
with unfinished():
    x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0])
    print("yours              ", gelu(x).numpy().round(4))
    print("torch's, exact     ", F.gelu(x).numpy().round(4))
    print("torch's, tanh form ", F.gelu(x, approximate="tanh").numpy().round(4))

# %% [markdown]
# ## 3 · A gate instead of a bend: SwiGLU
#
# Llama, Qwen and most recent models use three matrices. One path up is a **gate**: it decides, number by number, how much of the other path comes through.
#
# $$\mathrm{SwiGLU}(x) = W_2\big(\mathrm{silu}(W_1 x) \odot W_3 x\big), \qquad \mathrm{silu}(z) = z \cdot \mathrm{sigmoid}(z) = \frac{z}{1 + e^{-z}}$$
#
# | in code | | shape |
# |---|---|---|
# | `w1` | the gate | $d \to d_{ff}$ |
# | `w3` | the way up | $d \to d_{ff}$ |
# | `w2` | the way down | $d_{ff} \to d$ |
#
# $\odot$ multiplies number by number. None of the three has a bias. (The odd numbering is Llama's; later files rely on it.)
#
# Three matrices of width $4d$ would make a block half as large again. To keep the size, $d_{ff}$ shrinks to two thirds of $4d$, which is $8d/3$: then $3 \cdot d \cdot 8d/3 = 8d^2$, as before.
# Python's `//` cuts the rest off: for $d = 8$, `8 * 8 // 3` is 21.
#
# ### TODO 6.5
#
# `F.silu` is allowed.


# %% todo="6.5"
class SwiGLU(nn.Module):
    """w2(silu(w1 x) ⊙ w3 x), without biases; d_ff is 8 · d_model // 3 unless given."""

    def __init__(self, d_model, d_ff=None):
        super().__init__()
        # TODO 6.5: the default of d_ff; then self.w1, self.w3 (up) and self.w2 (down), none with a bias
        ### BEGIN SOLUTION
        if d_ff is None:
            d_ff = 8 * d_model // 3
        self.w1 = nn.Linear(d_model, d_ff, bias=False)
        self.w3 = nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_ff, d_model, bias=False)
        ### END SOLUTION

    def forward(self, x):  # [..., d_model]
        # TODO 6.5: the gate times the way up, then the way down   [..., d_model]
        ### BEGIN SOLUTION
        return self.w2(F.silu(self.w1(x)) * self.w3(x))
        ### END SOLUTION


# %% test="6.5" points=4
check("6.5", SwiGLU)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.5", SwiGLU)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What the width is for
#
# Left: a wavy curve, and what *your* block makes of a token whose first feature is $x$. The way up is fixed; the way down is chosen as well as it can be.
# Right: how much output $i$ depends on input $j$, for six tokens.
#
# Before you move a control: how many corners can a ReLU block with 8 inner units have? What does *none* give, at any width?

# %%
from transformer_lab.widgets.ch06 import bends

bends(FeedForward, gelu, SwiGLU)

# %% [markdown]
# Each inner unit contributes one corner, at the place where it crosses 0. Sixteen units follow the wave closely; two hardly bend at all.
# With *none* the best fit is a straight line, however wide the block is: it misses by 0.57 with 2 units and with 32. GELU and SwiGLU draw the same wave without corners.
#
# The right half answers the second question from the top: only the diagonal is lit. An output depends on the input at its own position and on no other. Attention is the only place
# where tokens meet.

# %% [markdown]
# ## 5 · The encoder layer
#
# All parts of an encoder layer are there now.

# %%
architecture("encoder")

# %% [markdown]
# A layer has two sublayers, and each stands in an Add & Norm of its own:
#
# $$\textbf{Post-Norm:}\quad u = \mathrm{norm}_1\big(x + \mathrm{attn}(x)\big), \qquad y = \mathrm{norm}_2\big(u + \mathrm{ffn}(u)\big)$$
#
# $$\textbf{Pre-Norm:}\quad u = x + \mathrm{attn}\big(\mathrm{norm}_1(x)\big), \qquad y = u + \mathrm{ffn}\big(\mathrm{norm}_2(u)\big)$$
#
# $x$, $u$ and $y$ are $[B, n, d]$. The second sublayer starts from $u$, the result of the first. $\mathrm{attn}(z)$ is *self*-attention: queries, keys and values all come from $z$.
#
# `PostNorm` and `PreNorm` of chapter 05 know these two orders: you give them $x$ and a **function**. The feed-forward block is a function of one argument already. The attention wants more,
# so wrap it: `lambda y: self.attn(y, y, y, mask)` is a function of `y` alone, which keeps the mask in its pocket. What `y` will be, $x$ or the normalised $x$, is the wrapper's business.
#
# The contract names four attributes: `attn`, `ffn`, `norm1`, `norm2`. The mask is boolean, **True means "may attend"**, and goes to the attention only: the feed-forward block
# looks at no other token, so it needs none. Any `norm` but `"post"` and `"pre"` is refused with a `ValueError`, so that a typing error does not quietly build another model.
#
# The check runs what you build from: let 6.1 pass first. Is your `FeedForward` not finished? Put `from transformer_lab.parts import FeedForward` at the top of the cell below,
# and build on the finished one.
#
# ### TODO 6.6


# %% todo="6.6"
class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each in an Add & Norm."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        # TODO 6.6: refuse an unknown norm; make self.attn, self.ffn, self.norm1 and self.norm2
        ### BEGIN SOLUTION
        wrappers = {"post": PostNorm, "pre": PreNorm}
        if norm not in wrappers:
            raise ValueError(f'norm is "post" or "pre", not {norm!r}')
        self.attn, self.ffn = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = wrappers[norm](d_model), wrappers[norm](d_model)
        ### END SOLUTION

    def forward(self, x, mask=None):  # [B, n, d]
        # TODO 6.6: the attention in its Add & Norm, then the feed-forward network in its own   [B, n, d]
        ### BEGIN SOLUTION
        u = self.norm1(x, lambda y: self.attn(y, y, y, mask))
        return self.norm2(u, self.ffn)
        ### END SOLUTION


# %% test="6.6" points=8
check("6.6", EncoderLayer)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.6", EncoderLayer)
### END HIDDEN TESTS

# %% [markdown]
# ### The same as torch's?
#
# `nn.TransformerEncoderLayer` is torch's own encoder layer. Give both the same weights, and they must compute the same numbers. Two things differ in form: torch keeps
# $W_q$, $W_k$ and $W_v$ in one tall matrix, and its padding mask says True where attention is **forbidden**.


# %%
def transplant(theirs, mine):
    """Copy the weights of an nn.TransformerEncoderLayer into your EncoderLayer."""
    three = zip(theirs.self_attn.in_proj_weight.chunk(3), theirs.self_attn.in_proj_bias.chunk(3), strict=True)
    pairs = [
        (theirs.self_attn.out_proj, mine.attn.W_o),
        (theirs.linear1, mine.ffn.linear1),
        (theirs.linear2, mine.ffn.linear2),
        (theirs.norm1, getattr(mine.norm1, "norm", mine.norm1)),  # inside PostNorm, or a bare LayerNorm
        (theirs.norm2, getattr(mine.norm2, "norm", mine.norm2)),
    ]
    with torch.no_grad():
        for linear, (weight, bias) in zip((mine.attn.W_q, mine.attn.W_k, mine.attn.W_v), three, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        for source, target in pairs:
            target.weight.copy_(source.weight)
            target.bias.copy_(source.bias)


torch.manual_seed(0)
sentences = torch.randn(2, 5, 12)  # [B, n, d]
real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])  # the second sentence ends in two paddings

with unfinished():
    for norm in ("post", "pre"):
        theirs = nn.TransformerEncoderLayer(
            12, 4, 30, dropout=0.0, batch_first=True, norm_first=norm == "pre"
        )
        for parameter in theirs.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)  # norms and biases, too
        try:
            layer = EncoderLayer(12, 4, 30, norm)
            transplant(theirs, layer)
            a, b = theirs(sentences, src_key_padding_mask=~real), layer(sentences, real[:, None, None, :])
            print(norm, "equal to torch's:", torch.allclose(a, b, atol=1e-4))
        except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
            print(norm, "cannot be compared before 6.6 passes:", problem)

# %% [markdown]
# ## 6 · The encoder
#
# An encoder is $N$ such layers, one after the other: the result of each is the input of the next. The paper has $N = 6$. All layers are built alike, and each has **weights of its own**.
#
# - Keep them in an `nn.ModuleList`, in the attribute `layers`. In a plain Python list, torch would not see them.
# - `[layer] * 6` is a trap: a list with the *same* layer six times. So is one layer that is called six times.
# - With Pre-Norm nothing ever normalises the residual path. So a Pre-Norm encoder ends in one more `nn.LayerNorm`, in the attribute `norm`. A Post-Norm encoder does not need it: its last layer ends in a norm.
#
# Is your `EncoderLayer` not finished? Put `from transformer_lab.parts import EncoderLayer` at the top of the cell below.
#
# ### TODO 6.7


# %% todo="6.7"
class Encoder(nn.Module):
    """N encoder layers in a row; with Pre-Norm, one more norm at the end."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        # TODO 6.7: self.layers, N layers of their own; for norm="pre" also self.norm
        ### BEGIN SOLUTION
        self.layers = nn.ModuleList(EncoderLayer(d_model, h, d_ff, norm) for _ in range(N))
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        ### END SOLUTION

    def forward(self, x, mask=None):  # [B, n, d]
        # TODO 6.7: through all layers, with the mask; then the final norm if there is one   [B, n, d]
        ### BEGIN SOLUTION
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)
        ### END SOLUTION


# %% test="6.7" points=6
check("6.7", Encoder)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.7", Encoder)
### END HIDDEN TESTS

# %% [markdown]
# The whole encoder against torch's, in both orders, with padding:

# %%
with unfinished():
    for norm in ("post", "pre"):
        one = nn.TransformerEncoderLayer(12, 4, 30, dropout=0.0, batch_first=True, norm_first=norm == "pre")
        final = nn.LayerNorm(12) if norm == "pre" else None
        theirs = nn.TransformerEncoder(one, 3, final, enable_nested_tensor=False)
        for parameter in theirs.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)  # norms and biases, too
        try:
            encoder = Encoder(12, 4, 30, 3, norm)
            for their_layer, my_layer in zip(theirs.layers, encoder.layers, strict=True):
                transplant(their_layer, my_layer)
            if norm == "pre":
                encoder.norm.load_state_dict(final.state_dict())
            a, b = theirs(sentences, src_key_padding_mask=~real), encoder(sentences, real[:, None, None, :])
            print(norm, "equal to torch's:", torch.allclose(a, b, atol=1e-4))
        except (AttributeError, RuntimeError, TypeError, ValueError) as problem:
            print(norm, "cannot be compared before 6.7 passes:", problem)

# %% [markdown]
# Now step into the trap on purpose. Two stacks of six layers; how many parameters has each?

# %%
with unfinished():
    trap = nn.ModuleList([EncoderLayer(512, 8, 2048)] * 6)
    print("[layer] * 6:    ", f"{sum(p.numel() for p in trap.parameters()):12,}")
    print("your Encoder:   ", f"{sum(p.numel() for p in Encoder(512, 8, 2048, 6).parameters()):12,}")

# %% [markdown]
# ## 7 · Where the parameters are
#
# Count one Post-Norm layer.
#
# - **Attention**: four matrices $[d, d]$, four biases $[d]$.
# - **Feed-forward**: $[d_{ff}, d]$ with a bias $[d_{ff}]$, and $[d, d_{ff}]$ with a bias $[d]$.
# - **Two norms**: each a weight $[d]$ and a bias $[d]$.
#
# With $d_{ff} = 4d$ the matrices alone hold $4d^2 + 8d^2 = 12d^2$ numbers. That is the rule of thumb for an encoder layer. A decoder layer has a second attention: $16d^2$.
# The number of heads $h$ plays no part.
#
# ### TODO 6.8
#
# The exact number for the whole Post-Norm encoder, as an `int`.


# %% todo="6.8"
def encoder_parameters(d_model, d_ff, N):
    """How many numbers a Post-Norm encoder of N layers learns, biases and norms included."""
    # TODO 6.8: attention, feed-forward network and two norms of one layer, times N
    ### BEGIN SOLUTION
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = (d_model * d_ff + d_ff) + (d_ff * d_model + d_model)
    norms = 2 * (d_model + d_model)
    return N * (attention + feed_forward + norms)
    ### END SOLUTION


# %% test="6.8" points=3
check("6.8", encoder_parameters)
### BEGIN HIDDEN TESTS
from grader import grade

grade("6.8", encoder_parameters)
### END HIDDEN TESTS

# %%
with unfinished():
    print("your formula:     ", f"{encoder_parameters(512, 2048, 6):,}")
    print("your encoder:     ", f"{sum(p.numel() for p in Encoder(512, 8, 2048, 6).parameters()):,}")
    print("rule of thumb 12d²:", f"{6 * 12 * 512**2:,}")

# %% [markdown]
# The picture counts in your `EncoderLayer` and sets your formula beside it. It starts with the paper's base model: $d = 512$, $d_{ff} = 2048$, $N = 6$, a vocabulary of 37 000.

# %%
from transformer_lab.widgets.ch06 import parameter_shares

parameter_shares(EncoderLayer, encoder_parameters)

# %% [markdown]
# The first question from the top: feed-forward holds twice as much as attention, two thirds of an encoder layer. In a decoder layer, with its two attentions, it is half. The norms are too thin to be seen: 2 048 numbers of 3 152 384 in a layer.
#
# Move the controls. Which of them changes the shares within the encoder, and which only the total? At which multiplier do attention and feed-forward weigh the same?
#
# **Mixture of experts.** Since most parameters sit in feed-forward networks, that is where large models grow. A *mixture of experts* puts many feed-forward networks side by side and a small router in front, which sends every token
# to a few of them, 2 of 8 for example. All of them have to be stored; only the chosen ones are computed. So the number of parameters grows by the number of experts, and the work for one token hardly does.

# %% [markdown]
# ## Review
#
# Choose an answer; every choice says what it would mean.

# %%
question("6-a")

# %%
question("6-b")

# %%
question("6-c")

# %%
question("6-d")

# %% [markdown]
# ## To think about
#
# **Can the feed-forward network go?** What would a stack of attention and Add & Norm alone be able to do?
#
# <details><summary>A discussion</summary>
#
# Each attention gives a weighted average of linear maps of tokens. The weights depend on the tokens in a non-linear way, so such a stack is not a linear map. But it never computes a new feature from one token's own features, and averages of averages
# make tokens more alike with every layer: without residual paths and feed-forward networks, deep attention drifts towards the same vector for every token. Models without feed-forward networks train, and do clearly worse. Researchers have also
# looked inside: many single inner units answer to one topic or phrase and then push the prediction one way, like an entry in a memory.
#
# </details>
#
# **Why four times?** The inner width is usually $4d$. What speaks for more, what for less?
#
# <details><summary>A discussion</summary>
#
# More units bend in more places (section 4), and cost grows in proportion: both parameters and time. Less leaves more money for depth or for $d$. Experiments find a broad optimum, so 4 is a habit more than a law: SwiGLU models use 8/3, T5's large versions used up to 64.
#
# </details>
#
# **Six layers or one layer six times?** Sharing one set of weights over all layers is a trap in 6.7, but the ALBERT model did it on purpose. What does it save, and what does it not?
#
# <details><summary>A discussion</summary>
#
# It saves memory: one layer's parameters instead of six, 3.2 million instead of 18.9 in the paper's encoder. It saves no time, since six layers are still computed. And it costs quality: a layer near the input and one near the output want to do different work.
#
# </details>

# %% [markdown]
# ## What you built
#
# A feed-forward network, two modern variants of it, an encoder layer in both orders, and a whole encoder that computes the same numbers as torch's. You also know where its parameters are.
# The other half comes next: chapter 07 builds the decoder, which looks at the encoder's result and must not look ahead.
