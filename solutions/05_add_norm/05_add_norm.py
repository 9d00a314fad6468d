# %% [markdown]
# # 05 · Add & Norm
#
# Attention and the feed-forward network do the work in a Transformer. Between them stand two small helpers
# without which a deep stack of them does not train: an **addition** and a **normalisation**. In this chapter you build both.
#
# **Where we are.** The lit blocks are today's. They follow every attention and every feed-forward network:
# two in each encoder layer, three in each decoder layer.

# %% setup=true
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import check, hint, question, unfinished

# %%
from transformer_lab.widgets.architecture import architecture

architecture("add & norm")

# %% [markdown]
# ## Before you read on
#
# Take 30 small layers, each a linear map followed by tanh, and put them in a row. Send numbers forward, a loss backward.
#
# 1. How large is the gradient at the **first** layer's input, compared with the **last** layer's? The same? A tenth? A millionth?
# 2. Now every layer adds its input to its output: $x + \tanh(Wx + b)$. How large is it then?
#
# Write down two guesses. In the second half of this chapter you measure both.

# %% [markdown]
# ## 1 · Add: the residual path
#
# A *sublayer* is attention or the feed-forward network: a function from $[B, n, d]$ to $[B, n, d]$
# ($B$ sentences, $n$ tokens, $d$ features a token). Instead of replacing $x$ by what the sublayer returns, we add:
#
# $$y = x + \mathrm{sublayer}(x) \qquad [B, n, d]$$
#
# Two things follow from this one plus sign.
#
# - **A sublayer learns only a change.** If there is nothing to improve, it returns zeros and $x$ passes as it is.
#   Without the plus, it would have to learn to copy $x$ first.
# - **The gradient has a road of its own.** The derivative of $y$ by $x$ is $1 + \mathrm{sublayer}'(x)$. In a chain of layers these
#   factors are multiplied. Where $\mathrm{sublayer}'$ alone is small, the product of 30 of them is nothing; with the 1 it is not.
#
# ## 2 · Norm: one scale for every token
#
# Sums grow. After many additions a token's numbers may be large, or far from 0, and the next sublayer meets inputs it was
# not made for. **LayerNorm** brings every token back to mean 0 and spread 1, each token by itself. For one token $x$ with $d$ features:
#
# $$\mu = \frac{1}{d}\sum_{j=1}^{d} x_j \qquad
# \sigma^2 = \frac{1}{d}\sum_{j=1}^{d} (x_j - \mu)^2 \qquad
# \mathrm{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot \gamma + \beta$$
#
# | symbol | meaning | shape for $x\;[B, n, d]$ |
# |---|---|---|
# | $\mu$, $\sigma^2$ | mean and variance of one token's features | $[B, n, 1]$ |
# | $\gamma$, in code `weight` | what every feature is multiplied by; learned, starts as ones | $[d]$ |
# | $\beta$, in code `bias` | what is added to every feature; learned, starts as zeros | $[d]$ |
# | $\varepsilon$, in code `eps` | a small number, so that nothing is divided by 0 | a number |
# | $\odot$ | feature by feature multiplication | |
#
# **By hand.** A token with $d = 4$ features, $x = [2, 4, 6, 8]$.
#
# - Its mean is $20 / 4 = 5$, so $x - \mu = [-3, -1, 1, 3]$.
# - Its variance is $(9 + 1 + 1 + 9) / 4 = 5$, and $\sqrt 5 = 2.236$.
# - The result is $[-1.342, -0.447, 0.447, 1.342]$.
#
# The variance is divided by $d$, not by $d - 1$. Statisticians divide by $d - 1$ when they estimate the variance of a whole
# population from a sample. Here the four numbers *are* the whole population. `x.var()` divides by $d - 1$ unless you tell it not to.
#
# ### TODO 5.1
#
# Stuck? Run `hint("5.1")` in a new cell: a question first, then the shapes, then pseudocode.


# %% todo="5.1"
class LayerNorm(nn.Module):
    """Brings every token to mean 0 and variance 1 over its features, then scales and shifts."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))  # γ [d]
        self.bias = nn.Parameter(torch.zeros(d_model))  # β [d]

    def forward(self, x):  # [..., d]
        # TODO 5.1: centre every token, divide by √(variance + eps), then weight and bias   [..., d]
        ### BEGIN SOLUTION
        mean = x.mean(dim=-1, keepdim=True)  # [..., 1]
        variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
        ### END SOLUTION


# %% test="5.1" points=8
check("5.1", LayerNorm)
### BEGIN HIDDEN TESTS
from grader import grade

grade("5.1", LayerNorm)
### END HIDDEN TESTS

# %% [markdown]
# Compare it with the example by hand, and with torch's own:

# %%
with unfinished():
    token = torch.tensor([[2.0, 4.0, 6.0, 8.0]])
    print("yours  ", LayerNorm(4)(token).detach().numpy().round(3))
    print("torch's", nn.LayerNorm(4)(token).detach().numpy().round(3))

# %% [markdown]
# ### Why not BatchNorm?
#
# BatchNorm is older and does well on images. It turns the idea round: one mean and one variance for each *feature*,
# taken over all tokens of the batch. So what becomes of a token depends on who stands beside it. The next cell normalises the same
# sentence of 3 tokens twice: alone, and in a batch where a neighbour was padded with 5 rows of zeros.

# %%
torch.manual_seed(5)
sentence = torch.randn(3, 4) + 1  # 3 tokens, d = 4
with_padding = torch.cat([sentence, torch.zeros(5, 4)])  # the same 3 tokens and 5 rows of padding

with unfinished():
    for name, norm in (("BatchNorm", nn.BatchNorm1d(4)), ("your LayerNorm", LayerNorm(4))):
        print(f"{name}, first token")
        print("   alone       ", norm(sentence)[0].detach().numpy().round(2))
        print("   with padding", norm(with_padding)[0].detach().numpy().round(2))

try:
    nn.BatchNorm1d(4)(sentence[:1])  # a batch of one token
except ValueError as error:
    print("BatchNorm on one token:", error)

# %% [markdown]
# Padding changed every number of BatchNorm's first token, although the sentence is the same. And a batch of one token has no spread
# to divide by, so BatchNorm refuses. It also has to remember running averages, so it behaves in one way in training and in another
# when a model is used. LayerNorm has none of these troubles: a token needs nobody but itself.

# %% [markdown]
# ### Where normalised vectors lie
#
# Two conditions hold for every normalised token (with γ = 1 and β = 0): its features **sum to 0**, and its **length is $\sqrt d$**, since
# $\sum_j \hat x_j^2 = d\,\sigma^2/(\sigma^2 + \varepsilon) \approx d$. The first is a plane through 0 (for $d$ features, a hyperplane). The second is a sphere.
# Where do a plane and a sphere meet? Answer before you run the cell; it shows 120 vectors with 3 features, drawn from your class.

# %%
from transformer_lab.widgets.ch05 import geometry

geometry(LayerNorm=LayerNorm)

# %% [markdown]
# They meet in a circle. LayerNorm throws away two numbers of every token: how large it is, and how far its features lie from 0 on average.
# Only the direction within the plane is left. Turn the view to 45: now you look along the orange line, and see the circle from above.
#
# Now break it: set *γ of feature 1* to 0.25, then to 2. The circle becomes an ellipse that leaves the plane. So γ (and β, which moves it)
# give back some of the freedom that the norm took.

# %% [markdown]
# ## 3 · Add & Norm together: which first?
#
# There are two good orders, and both have a name.
#
# $$\textbf{Post-Norm:}\quad \mathrm{norm}\big(x + \mathrm{dropout}(\mathrm{sublayer}(x))\big)
# \qquad\qquad
# \textbf{Pre-Norm:}\quad x + \mathrm{dropout}\big(\mathrm{sublayer}(\mathrm{norm}(x))\big)$$
#
# Everything in these formulas is $[B, n, d]$. Post-Norm is the order of the paper of 2017: add, then normalise. Pre-Norm is the order of nearly every large
# model since GPT-2: normalise what goes *into* the sublayer and leave the residual path alone.
#
# *Dropout* sets a random share of numbers to 0 during training and enlarges the others by $1/(1-p)$, so that a model does not
# rely on single numbers. It acts on what the sublayer returns, before the addition, and it must do nothing in eval mode.
# `nn.Dropout(p)` knows the mode of the module it belongs to.
#
# `norm` below is torch's LayerNorm, so that you can go on if 5.1 is not finished. Your own fits in the same place: try it.
#
# ### TODO 5.2 and 5.3
#
# `sublayer` is any function or module from $[B, n, d]$ to $[B, n, d]$: call it like a function.


# %% todo="5.2"
class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x)))"""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)  # or your own LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):  # [B, n, d], a function
        # TODO 5.2: the sublayer, dropout, the addition, the norm: in Post-Norm's order   [B, n, d]
        ### BEGIN SOLUTION
        return self.norm(x + self.dropout(sublayer(x)))
        ### END SOLUTION


# %% test="5.2" points=5
check("5.2", PostNorm)
### BEGIN HIDDEN TESTS
from grader import grade

grade("5.2", PostNorm)
### END HIDDEN TESTS


# %% todo="5.3"
class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x)))"""

    def __init__(self, d_model, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)  # or your own LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):  # [B, n, d], a function
        # TODO 5.3: the same four steps in Pre-Norm's order   [B, n, d]
        ### BEGIN SOLUTION
        return x + self.dropout(sublayer(self.norm(x)))
        ### END SOLUTION


# %% test="5.3" points=5
check("5.3", PreNorm)
### BEGIN HIDDEN TESTS
from grader import grade

grade("5.3", PreNorm)
### END HIDDEN TESTS

# %% [markdown]
# A third order is in circulation: $x + \mathrm{norm}(\mathrm{sublayer}(x))$. It is neither of the two. The norm never sees $x$, so the sum is not brought
# back to one scale (Post-Norm's purpose), and the sublayer's input is not either (Pre-Norm's purpose).
# If you meet it under the name Post-Norm, somebody misplaced a bracket.

# %% [markdown]
# ## 4 · RMSNorm: leave the mean out
#
# Llama, Qwen and most recent models use a simpler norm. It subtracts no mean and adds no bias; it only rescales by the **r**oot **m**ean **s**quare:
#
# $$\mathrm{RMS}(x) = \sqrt{\frac1d \sum_{j=1}^{d} x_j^2 + \varepsilon} \qquad\qquad \mathrm{RMSNorm}(x) = \frac{x}{\mathrm{RMS}(x)} \odot \gamma$$
#
# **By hand.** For $x = [2, 4, 6, 8]$ the mean square is $(4 + 16 + 36 + 64)/4 = 30$, and $\sqrt{30} = 5.477$. The result is $[0.365, 0.730, 1.095, 1.461]$.
# The standard deviation of the same token was 2.236: it measures the distance from the *mean*, RMS the distance from *0*.
# They agree only when the mean is 0.
#
# ### TODO 5.4


# %% todo="5.4"
class RMSNorm(nn.Module):
    """Divides every token by the root of its mean square, then scales by weight."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))  # γ [d]

    def forward(self, x):  # [..., d]
        # TODO 5.4: divide x by √(mean of x² + eps), then multiply by weight   [..., d]
        ### BEGIN SOLUTION
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)  # [..., 1]
        return x / torch.sqrt(mean_square + self.eps) * self.weight
        ### END SOLUTION


# %% test="5.4" points=5
check("5.4", RMSNorm)
### BEGIN HIDDEN TESTS
from grader import grade

grade("5.4", RMSNorm)
### END HIDDEN TESTS

# %%
with unfinished():
    print("yours  ", RMSNorm(4)(token).detach().numpy().round(3))
    print("torch's", nn.RMSNorm(4, eps=1e-6)(token).detach().numpy().round(3))

# %% [markdown]
# One condition is gone, so one dimension comes back. What shape do 120 vectors of 3 features fill after RMSNorm?

# %%
geometry(RMSNorm=RMSNorm, LayerNorm=LayerNorm)

# %% [markdown]
# ## 5 · The experiment: a gradient on its way down
#
# Now to your two guesses. The stack is this, and the numbers are fixed by the seed:
#
# - `deep_stack(depth, d_model, seed)` returns `depth` linear layers and an input of 16 rows, $[16, d]$;
# - layer $l$ computes $y = \tanh(\mathrm{layer}_l(x))$, and the next $x$ is $y$, or $x + y$ when `residual` is true;
# - the loss is the **sum** of all numbers of the last $x$.
#
# The result, $[\text{depth}]$, is the norm of the loss's gradient at every layer's *input*, first layer first: the root of the sum of its squares over all 16 rows.
# There is no LayerNorm in this stack: we want to see what the residual does by itself.


# %% setup=true
def deep_stack(depth, d_model, seed):
    """`depth` linear layers and an input [16, d], the same for the same seed."""
    torch.manual_seed(seed)
    layers = [nn.Linear(d_model, d_model) for _ in range(depth)]
    return layers, torch.randn(16, d_model, requires_grad=True)


# %% [markdown]
# ### TODO 5.5
#
# `torch.autograd.grad(loss, tensors)` returns the gradient of `loss` by each tensor in a list. So keep every layer's input in a list as you go forward.


# %% todo="5.5"
def gradient_norms(depth, d_model, residual, seed=0):
    """The gradient's norm at each layer's input, [depth]; `residual` adds a layer's input to its output."""
    layers, x = deep_stack(depth, d_model, seed)
    # TODO 5.5: go forward and remember each layer's input; then the norms of the gradients of x.sum()   [depth]
    ### BEGIN SOLUTION
    inputs = []
    for layer in layers:
        inputs.append(x)
        y = torch.tanh(layer(x))
        x = x + y if residual else y
    gradients = torch.autograd.grad(x.sum(), inputs)
    return torch.stack([gradient.norm() for gradient in gradients])
    ### END SOLUTION


# %% test="5.5" points=5
check("5.5", gradient_norms)
### BEGIN HIDDEN TESTS
from grader import grade

grade("5.5", gradient_norms)
### END HIDDEN TESTS

# %%
from transformer_lab.widgets.ch05 import gradients_by_layer

gradients_by_layer(gradient_norms)

# %% [markdown]
# Thirty layers without a residual leave the first layer with about a ten-millionth of the gradient that reaches the last: a straight line on a
# logarithmic scale, so each layer costs the same factor. That layer does not learn. With the residual, the gradient arrives. It even grows a little
# on its way, by a factor of 5 over 30 layers, because every layer adds its own part to the 1.

# %% [markdown]
# ## 6 · Everything at once
#
# The next picture is drawn from your `PostNorm` and `PreNorm`: a stack of wrapped feed-forward sublayers, 16 random tokens, $d = 32$.
# Left: the statistics of a token after each layer. Middle: how much of the stack's input is still to be seen (the cosine of the angle between the two).
# Right: the gradient.

# %%
from transformer_lab.widgets.ch05 import by_depth

by_depth(PostNorm, PreNorm)

# %% [markdown]
# Try these, and say beforehand what will happen:
#
# 1. *no norm*, with the residual, 24 layers. The spread grows to about 30: sums grow. The gradient grows as well.
# 2. *no norm*, without the residual. Both the token and its gradient die out: at 24 layers the spread is about 0.0000003.
# 3. *Post-Norm* without the residual. The spread is 1 and the gradient is alive: a norm rescales both. But look at the middle: after one
#    layer nothing of the input is left to be seen. With the residual it fades over some 15 layers, and in Pre-Norm a good part stays to the end.
#    A norm alone keeps the *size*; the residual keeps the *content*.
# 4. *Pre-Norm* with the residual. The spread on the residual path grows slowly (nothing normalises the path itself), so each further layer changes
#    the sum less. This is why a Pre-Norm stack ends in one more norm, which the picture includes and you add in chapter 06.
# 5. γ at 0.5 or 2 in both orders. In which order is the spread on the left exactly γ, and why?
#
# ### Warmup
#
# The original Transformer needs *warmup*: thousands of first steps with a very small learning rate. Pre-Norm models can do without it.
# A reason can be measured before any training: the gradient of the last layer's weights.

# %%
from transformer_lab.widgets.ch05 import depth_data

with unfinished():
    print("gradient of the last layer's weights, before training")
    print("layers   Post-Norm   Pre-Norm")
    for depth in (6, 12, 24, 48):
        post = depth_data(PostNorm, depth).weight_gradient[-1]
        pre = depth_data(PreNorm, depth, final=True).weight_gradient[-1]
        print(f"{depth:6} {post:11.0f} {pre:10.0f}")

# %% [markdown]
# In Post-Norm it hardly falls, however deep the stack is: the last layers are pulled hard from the first step on. In Pre-Norm it falls with the depth,
# by about $\sqrt 2$ each time the depth doubles, because the final norm divides by a sum that has grown. A small learning rate at the start protects
# Post-Norm from its own first steps. (The analysis is by Xiong and others, "On Layer Normalization in the Transformer Architecture", 2020.)

# %% [markdown]
# ## Review
#
# Choose an answer; every choice says what it would mean.

# %%
question("5-a")

# %%
question("5-b")

# %%
question("5-c")

# %%
question("5-d")

# %% [markdown]
# ## To think about
#
# **What does LayerNorm's geometry cost?** Two tokens $x$ and $3x + 2$ (every feature times 3, plus 2) come out of LayerNorm as the same vector. What can a layer after it never learn?
#
# <details><summary>A discussion</summary>
#
# It can never tell how large a token was, nor what its mean was; both are divided or subtracted away. In Post-Norm this holds for the whole stream,
# in Pre-Norm only for what a sublayer sees, while the residual path keeps the size. With d = 512 features the loss is small: 510 of 512 degrees of
# freedom remain. With d = 2 it would be fatal: a line through 0 meets a circle in two points, so every token would come out as (1, −1) or (−1, 1).
#
# </details>
#
# **Where could the mean go?** RMSNorm leaves it in and works as well in practice. Why might the mean be harmless?
#
# <details><summary>A discussion</summary>
#
# The next linear map has weights of its own for every feature, and it can remove (or use) a mean by itself: a weight row that sums to 0 does not see it.
# What a linear map cannot do is divide by the size, and RMSNorm does that. It also saves one pass over the data.
#
# </details>
#
# **Is a residual enough?** In section 5 the gradient grows by about 5 over 30 layers with a residual and no norm. What happens at 1000 layers?
#
# <details><summary>A discussion</summary>
#
# A factor of 5 in 30 layers is 1.055 a layer. If it stayed like that, 1000 layers would give about 10²³. The residual cures vanishing and not exploding, so deep stacks
# need a second means: a norm, or a small number before each sublayer's output, or initial weights that shrink with the depth (GPT-2 divides some of them by √(2N)).
#
# </details>

# %% [markdown]
# ## What you built
#
# `LayerNorm`, `RMSNorm`, the two wrappers `PostNorm` and `PreNorm`, and a measurement that shows why they are there.
# One block is missing from an encoder layer: the feed-forward network. Chapter 06 builds it, and then puts attention, feed-forward and today's blocks together into the encoder.
