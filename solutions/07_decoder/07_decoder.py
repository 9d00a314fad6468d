# %% [markdown]
# # 07 · The decoder
#
# The encoder of chapter 06 reads a sentence and gives every token a row of numbers that knows its neighbours.
# The **decoder** writes the answer, one token after another. It is an encoder layer with two changes:
# it may not look ahead, and it has a second attention that reads the source.
#
# You will build the four small functions that decide who may look at whom, then the decoder layer and the stack.
# Plan for about 75 minutes.

# %% setup=true
import torch
from torch import nn

from transformer_lab import check, hint, question, unfinished

# Finished parts of earlier chapters. Your own fit in the same place:
#   from transformer_lab import mine
#   MultiHeadAttention = mine.load("MultiHeadAttention")
from transformer_lab.parts import FeedForward, LayerNorm, MultiHeadAttention, PostNorm, PreNorm

# %% [markdown]
# ## Where we are
#
# The lit block is the right half of the machine. The encoder's output, the **memory**, enters it from the side.

# %%
from transformer_lab.widgets.architecture import architecture

architecture("decoder")

# %% [markdown]
# ## Predict first
#
# We want to translate 我 爱 猫 into *I love cats*. During training the right answer is known, so we could hand the decoder the
# whole answer at once and ask: "what comes at each place?"
#
# Somebody trains a decoder exactly so, with the answer as input and no mask. The training loss drops to zero within minutes.
#
# *How good are its translations?* Decide before you read on.
#
# <details><summary><b>What happens</b></summary>
#
# They are useless. To predict place 2 the model simply looks at place 2 of its input, where the answer stands. It learned to
# copy, and copying needs no understanding. When it has to translate for real there is no answer to copy from.
#
# This chapter is about preventing that: first by **shifting** the input, then by **masking** the future. Both are needed.
# </details>

# %% [markdown]
# ## One step to the right
#
# Chapter 01 gave three special tokens their ids: `<pad>` = 0, `<s>` = 1 (begin), `</s>` = 2 (end).
# At place $i$ the decoder is given the token **before** place $i$ and must predict the token **at** place $i$:
#
# | place | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | decoder input | `<s>` | I | love | cats |
# | must predict | I | love | cats | `</s>` |
#
# The lower row is the target. The upper row is the target moved one place to the right, with `<s>` (its id is called `bos_id`) in front; the last
# token has fallen out, since nothing has to be predicted after `</s>`.
#
# While training, the decoder is always given the **right** earlier tokens, even where it would have said something else.
# That is called *teacher forcing*: the teacher says the beginning, the student continues by one word.
#
# ### TODO 7.1
#
# `target` has shape `[B, m]`: $B$ sentences of $m$ tokens. Return the decoder's input, also `[B, m]`. Do not change `target` itself: the
# loss still needs it.
#
# Two functions of PyTorch help: `torch.full_like(tensor, value)` makes a tensor of the same shape and type filled with a
# value, and `torch.cat([a, b], dim=1)` joins two tensors along axis 1. Stuck? `hint("7.1")`.


# %% todo="7.1"
def shift_right(target, bos_id):
    """The decoder's input for predicting `target`: [B, m] -> [B, m]."""
    # TODO 7.1: bos_id in front of every row, then the row without its last token
    ### BEGIN SOLUTION
    first = torch.full_like(target[:, :1], bos_id)  # [B, 1]
    return torch.cat([first, target[:, :-1]], dim=1)  # [B, m]
    ### END SOLUTION


# %% test="7.1" points=2
check("7.1", shift_right)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.1", shift_right)
### END HIDDEN TESTS

# %% [markdown]
# ## Do not look ahead
#
# Shifting alone is not enough. At place 1 the decoder must predict *love*, and *love* stands in its own input at place 2. Self-attention
# lets every token look at every other, so place 1 would look at place 2 and copy.
#
# So we forbid it: **place $i$ may attend to places $0, 1, \dots, i$** and to nothing later. This is the *causal mask*.
# In this course a mask is boolean and **True means "may attend"**. Rows are queries (who looks), columns are keys (who is looked at):
#
# | may attend | `<s>` | I | love | cats |
# |---|---|---|---|---|
# | **`<s>`** | ✓ | | | |
# | **I** | ✓ | ✓ | | |
# | **love** | ✓ | ✓ | ✓ | |
# | **cats** | ✓ | ✓ | ✓ | ✓ |
#
# Every token may look at itself: the input is shifted, so what stands at place $i$ is the token before, and it is no secret.
# Without the diagonal the first row would be empty, and softmax over nothing gives NaN.
#
# ### By hand
#
# Say the third row of scores is $(1, 0, 1, 5)$. Without the mask, softmax gives the weights $(0.018, 0.007, 0.018, 0.958)$:
# place 2 looks almost only at the future. With the mask the last score becomes $-\infty$ and $e^{-\infty} = 0$:
#
# $$\frac{(e^1, e^0, e^1, 0)}{e^1 + e^0 + e^1} = (0.422, 0.155, 0.422, 0).$$
#
# ### TODO 7.2
#
# Return the mask for $m$ tokens, boolean, with shape `[1, 1, m, m]`. The two axes of length 1 are for the sentences of a batch and for the heads: PyTorch
# repeats an axis of length 1 as often as needed (*broadcasting*), so one mask serves all of them.
#
# Worth knowing: `tensor.tril()` keeps the lower triangle of the last two axes, the diagonal included.


# %% todo="7.2"
def causal_mask(m):
    """Who may look at whom among m target tokens: bool [1, 1, m, m]."""
    # TODO 7.2: True on and below the diagonal, False above it
    ### BEGIN SOLUTION
    return torch.ones(1, 1, m, m, dtype=torch.bool).tril()
    ### END SOLUTION


# %% test="7.2" points=2
check("7.2", causal_mask)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.2", causal_mask)
### END HIDDEN TESTS

# %% [markdown]
# ## Do not look at padding
#
# The sentences of a batch have different lengths, and a tensor needs equal rows. So short ones are filled up with `<pad>`. Those places
# carry no meaning and nobody should look at them, neither in the source nor in the target.
#
# Padding is a property of the **keys**: "do not look *at* this place". So a mask from the ids `[B, n]` gets the shape `[B, 1, 1, n]`: its own row for each sentence,
# the same for every head and for every query.
#
# What about padded *queries*? They may look wherever they like. What they gather is never read by anyone, and the loss skips them (chapter 08).
# Blocking their whole row would leave softmax nothing to share out, and you would meet NaN.
#
# ### TODO 7.3
#
# A comparison such as `ids != 7` gives a boolean tensor of the same shape. `tensor[:, None]` puts an axis of length 1 after the first one.
# (`hint("7.3")` if you are stuck.)


# %% todo="7.3"
def padding_mask(ids, pad_id=0):
    """Where a real token stands: ids [B, n] -> bool [B, 1, 1, n]."""
    # TODO 7.3: compare with pad_id, then add the axes of heads and queries
    ### BEGIN SOLUTION
    return (ids != pad_id)[:, None, None, :]
    ### END SOLUTION


# %% test="7.3" points=2
check("7.3", padding_mask)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.3", padding_mask)
### END HIDDEN TESTS

# %% [markdown]
# ### TODO 7.4: both at once
#
# In the decoder's self-attention a key must be real **and** not in the future. `a & b` of two boolean tensors is True where both are; `[B, 1, 1, m]` and
# `[1, 1, m, m]` broadcast to `[B, 1, m, m]`.
#
# (`causal_mask` makes its tensor on the CPU. Write `.to(ids.device)` behind it, and your function will also work where `ids` are on a GPU.)


# %% todo="7.4"
def target_mask(ids, pad_id=0):
    """Real keys that are not in the future: ids [B, m] -> bool [B, 1, m, m]."""
    # TODO 7.4: both masks at once
    ### BEGIN SOLUTION
    return padding_mask(ids, pad_id) & causal_mask(ids.size(1)).to(ids.device)
    ### END SOLUTION


# %% test="7.4" points=2
check("7.4", target_mask)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.4", target_mask)
### END HIDDEN TESTS

# %% [markdown]
# *Predict the mask* of the decoder input `<s> I love <pad>`, row by row. Then run the cell (● may attend, · may not).

# %%
with unfinished():
    for row in target_mask(torch.tensor([[1, 5, 9, 0]]))[0, 0].tolist():
        print(" ".join("●" if allowed else "·" for allowed in row))

# %% [markdown]
# The last row belongs to the padding itself: it may look at the three real tokens. Its *column* is empty: nobody looks at it.

# %% [markdown]
# ## Reading the source: cross-attention
#
# The decoder now knows what it has said so far. It still has to look at the source. That is the second attention of a decoder layer, the
# **cross-attention**. It is the attention of chapter 04; only its three inputs come from two places:
#
# * the **query** from the decoder, $x$ `[B, m, d]`: "I am about to say the next word; what do I need to know?"
# * **key** and **value** from the encoder's output, the memory `[B, n, d]`: "this is what I can be found by, this is what I give".
#
# $$\text{scores} = \frac{Q K^\top}{\sqrt{d_k}} \quad \text{with } Q\,[B, h, m, d_k],\; K\,[B, h, n, d_k],\; \text{scores}\,[B, h, m, n].$$
#
# The score matrix need not be square: $m$ target tokens look at $n$ source tokens, and each row sums to 1 over the source.
#
# ### By hand
#
# One target token asks with $q = (1, 0)$. The memory has three tokens; take keys and values to be the rows themselves: $(1, 0)$, $(0, 1)$, $(1, 1)$. Here $d_k = 2$.
#
# * scores: $(1, 0, 1) / \sqrt 2 = (0.707, 0, 0.707)$
# * weights: $(0.401, 0.198, 0.401)$
# * output: $0.401\,(1, 0) + 0.198\,(0, 1) + 0.401\,(1, 1) = (0.802, 0.599)$
#
# ### Which mask across?
#
# *Does the cross-attention need the causal mask?* No. The source is given whole, before the first target word is written. Chinese puts "yesterday"
# early and English may put it last: the first English word may well need the last Chinese one. Only padding is masked.
#
# | attention | who asks | who answers | mask | its shape |
# |---|---|---|---|---|
# | encoder, self | source | source | source padding | `[B, 1, 1, n]` |
# | decoder, self | target | target | target padding and causal | `[B, 1, m, m]` |
# | decoder, cross | target | source | source padding | `[B, 1, 1, n]` |

# %%
architecture("cross-attention")

# %% [markdown]
# ## The decoder layer
#
# Three sublayers, in this order, each with its own Add & Norm from chapter 05:
#
# 1. **self-attention** over the target, masked: *what have I said so far?*
# 2. **cross-attention** to the memory: *what does the source say about it?*
# 3. **feed-forward**: *what do I make of it?*
#
# Everything keeps the shape `[B, m, d]`.
#
# The contract, by which your layer is tested and by which later chapters use it: the attributes `self_attn`, `cross_attn`, `ffn`, `norm1`, `norm2`, `norm3`.
# They are made for you below. `norm1` is a `PostNorm` or a `PreNorm`, which you built in chapter 05: you give it $x$ and a **function**, the sublayer, and it computes
#
# $$\text{post: } \mathrm{norm}(x + \mathrm{sublayer}(x)) \qquad \text{pre: } x + \mathrm{sublayer}(\mathrm{norm}(x)).$$
#
# A small function can be written in place: `lambda y: y * 2` is the function that doubles its input. So
# `self.norm1(x, lambda y: …)` runs whatever you write for the dots, with `y` being $x$ itself (post) or the normalised $x$ (pre).
#
# ### TODO 7.5
#
# Write `forward`: three lines, one for each sublayer. `hint("7.5")` helps one step at a time.


# %% todo="7.5"
class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and feed-forward, each with Add & Norm."""

    def __init__(self, d_model, h, d_ff, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f'norm is "post" or "pre", not {norm!r}')
        add_and_norm = PostNorm if norm == "post" else PreNorm
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = add_and_norm(d_model)
        self.norm2 = add_and_norm(d_model)
        self.norm3 = add_and_norm(d_model)

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        """x [B, m, d], memory [B, n, d], masks True where one may attend -> [B, m, d]"""
        # TODO 7.5: self-attention (tgt_mask), cross-attention to memory (memory_mask), feed-forward
        ### BEGIN SOLUTION
        x = self.norm1(x, lambda y: self.self_attn(y, y, y, tgt_mask))  # scores [B, h, m, m]
        x = self.norm2(x, lambda y: self.cross_attn(y, memory, memory, memory_mask))  # scores [B, h, m, n]
        return self.norm3(x, self.ffn)
        ### END SOLUTION


# %% test="7.5" points=8
check("7.5", DecoderLayer)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.5", DecoderLayer)
### END HIDDEN TESTS

# %% [markdown]
# ### The same layer in PyTorch
#
# `torch.nn` has a `TransformerDecoderLayer`. Give it *your* weights and it must give *your* numbers. Two differences to mind: it keeps the three projections
# $W_q, W_k, W_v$ in one tall matrix, and **its boolean masks have the opposite sign**: True means "may not attend". Hence the `~`.


# %%
def copy_attention(mine, theirs):
    """Copy the four projections of one attention into torch's."""
    three = [mine.W_q, mine.W_k, mine.W_v]
    theirs.in_proj_weight.copy_(torch.cat([w.weight for w in three]))
    theirs.in_proj_bias.copy_(torch.cat([w.bias for w in three]))
    theirs.out_proj.load_state_dict(mine.W_o.state_dict())


with unfinished(), torch.no_grad():
    torch.manual_seed(0)
    mine = DecoderLayer(d_model=16, h=4, d_ff=32)
    theirs = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    copy_attention(mine.self_attn, theirs.self_attn)
    copy_attention(mine.cross_attn, theirs.multihead_attn)
    theirs.linear1.load_state_dict(mine.ffn.linear1.state_dict())
    theirs.linear2.load_state_dict(mine.ffn.linear2.state_dict())

    x, memory, allowed = torch.randn(2, 5, 16), torch.randn(2, 7, 16), causal_mask(5)
    difference = (mine(x, memory, allowed) - theirs(x, memory, tgt_mask=~allowed[0, 0])).abs().max()
    print("equal up to rounding:", bool(difference < 1e-5))

# %% [markdown]
# ## The stack
#
# The decoder is $N$ such layers, one after the other (6 in the paper). Each has **weights of its own**. The target's representation $x$ changes from layer to layer; the
# memory is the same for all of them.
#
# With Pre-LN nothing ever normalises the sum that runs along the residual path, so one more `LayerNorm` stands after the last layer. Post-LN ends in a norm anyway.
#
# ### TODO 7.6
#
# Attributes: `layers`, an `nn.ModuleList` of $N$ layers, and for Pre-LN `norm`, a `LayerNorm` (for Post-LN set it to `None`).
# A plain Python list would not do: PyTorch looks for parameters inside modules and does not look into lists. (`hint("7.6")`)


# %% todo="7.6"
class Decoder(nn.Module):
    """N decoder layers; Pre-LN adds a final norm."""

    def __init__(self, d_model, h, d_ff, N, norm="post"):
        super().__init__()
        # TODO 7.6: self.layers, N layers of their own, and self.norm, for Pre-LN only
        ### BEGIN SOLUTION
        self.layers = nn.ModuleList(DecoderLayer(d_model, h, d_ff, norm) for _ in range(N))
        self.norm = LayerNorm(d_model) if norm == "pre" else None
        ### END SOLUTION

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        """x [B, m, d], memory [B, n, d] -> [B, m, d]"""
        # TODO 7.6: through all layers, then through the final norm if there is one
        ### BEGIN SOLUTION
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask)
        return x if self.norm is None else self.norm(x)
        ### END SOLUTION


# %% test="7.6" points=4
check("7.6", Decoder)
### BEGIN HIDDEN TESTS
from grader import grade

grade("7.6", Decoder)
### END HIDDEN TESTS

# %% [markdown]
# ## Does the future leak?
#
# A leak is hard to see from outside: a decoder that peeks trains *better* than an honest one, until it has to speak. But there is a test that cannot be fooled. If
# output $i$ does not depend on input $j$, then the gradient of output $i$ by input $j$ is exactly zero.
#
# The map below takes *your* `Decoder` and *your* `causal_mask` and measures all $8 \times 8$ gradients. Hatched cells are exactly zero.
#
# *Predict before you switch the mask:* which cells light up with **no mask**? With the mask **transposed**? And if the mask
# reaches just **one token too far**, how far does it leak through $N = 2$ layers?

# %%
from transformer_lab.widgets.ch07 import leak_map

leak_map(Decoder, causal_mask)

# %% [markdown]
# With a mask that reaches one token too far, layer 1 lets token $i$ see token $i + 1$; in layer 2 it sees what token $i + 1$ saw, which is token $i + 2$.
# After $N$ layers it sees $N$ tokens ahead. A small leak grows with depth.
#
# **Break it on purpose.** In your TODO 7.5 leave `tgt_mask` out of the self-attention, run the cell, the cell of 7.6 and the picture. Then put it back.

# %% [markdown]
# ## Why training is parallel and writing is not
#
# The mask gives us something precious. Since place $i$ never sees what comes after it, its output is the same whether the later tokens
# are there or not. So **one** pass over the whole shifted target gives the predictions for **all** $m$ places, exactly as if we had run the decoder $m$ times on growing beginnings.
#
# *Check it with your decoder:* one pass over six tokens, against six passes over 1, 2, …, 6 tokens.

# %%
with unfinished(), torch.no_grad():
    torch.manual_seed(0)
    decoder = Decoder(d_model=16, h=4, d_ff=32, N=2).eval()
    x, memory = torch.randn(1, 6, 16), torch.randn(1, 4, 16)
    at_once = decoder(x, memory, causal_mask(6))  # one pass, six outputs
    for i in range(6):
        alone = decoder(x[:, : i + 1], memory, causal_mask(i + 1))[:, -1]  # only what stands up to place i
        print(f"place {i}: equal up to rounding: {bool((alone - at_once[:, i]).abs().max() < 1e-5)}")

# %% [markdown]
# An RNN must take $m$ steps one after the other even in training, since step $i$ needs the state of step $i - 1$. A Transformer in training needs one.
#
# **Writing** is another matter. There is no target to shift: token 3 can be fed in only after it was chosen, and for that the decoder must have run on tokens 0 to 2.
# So generation takes one pass per token, for a Transformer too. Chapter 08 writes that loop.

# %% [markdown]
# ## Review

# %%
question("7-a")

# %%
question("7-b")

# %%
question("7-c")

# %%
question("7-d")

# %%
question("7-e")

# %%
question("7-f")

# %% [markdown]
# ## Think further
#
# <details><summary><b>With teacher forcing a model never sees its own mistakes while it learns. What could go wrong?</b></summary>
#
# When it writes, one odd word puts it into a situation that training never showed, and the next word may be odder still. This is called *exposure bias*. In practice strong models recover well,
# because a large training set contains many odd beginnings. Remedies: feed the model its own words now and then (scheduled sampling), or train on whole sentences it wrote (reinforcement learning).
# The price is the parallel training of this chapter.
# </details>
#
# <details><summary><b>GPT has no encoder and no cross-attention. How can a decoder alone both read and write?</b></summary>
#
# Question and answer are one sequence. While the model reads the question, each token already gathers what stands before it, layer by layer; that *is* the reading. When it
# writes, the new tokens look back at the question through the very same masked self-attention: it takes over the part of the cross-attention. What is lost: a token of the question
# cannot look at a later token of the question. What is won: one kind of layer, one kind of training (the next token), and every text is training data.
# </details>
#
# <details><summary><b>When writing token by token, how much of the work of earlier passes is done again?</b></summary>
#
# Nearly all. Keys and values of earlier tokens do not change, thanks to the causal mask, so they can be kept: the *KV cache*. Then each new token costs one row of attention where a whole triangle was computed before. The
# cross-attention's keys and values depend on the memory only and are computed once. The cache is why long conversations need so much memory.
# </details>

# %% [markdown]
# ## What you built
#
# * `shift_right` and the masks: what the decoder may know at each place;
# * `DecoderLayer`, which looks at itself, then at the source, then thinks; and `Decoder`, the stack;
# * a proof by gradients that nothing leaks.
#
# The decoder gives a row of $d$ numbers at each place. A row is not yet a word. Next, in **08 · Output**, rows become words, and all parts become one `Transformer`.
