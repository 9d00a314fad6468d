# %% [markdown]
# # 00 · Start
#
# In this course you build a Transformer, piece by piece, and in the end it translates. This first notebook
# is not graded. It shows the whole machine once, says why it replaced what came before, and lets you try
# the tools: a TODO, a check, a hint. Plan for about 20 minutes.
#
# Run a cell with **Shift + Enter**. Do it now with the next one, and go on like this from top to bottom.

# %% setup=true
import torch

from transformer_lab import check, device_report, hint, parts, question, unfinished

# %% [markdown]
# ## The whole machine on one page

# %%
from transformer_lab.widgets.architecture import architecture

architecture()

# %% [markdown]
# Read the map from the bottom up.
#
# * **Left, the encoder.** It reads the whole source sentence at once. Every token becomes a row of $d$ numbers
#   (embedding), gets a mark of its place (positional encoding), and then passes $N$ layers. In each layer tokens
#   collect from each other what they need (self-attention), and each one then thinks for itself (feed-forward).
#   What comes out is called the **memory**: still one row for each source token, but a row that knows its sentence.
# * **Right, the decoder.** It writes the target sentence, one token after another. Its layers hold a third block,
#   cross-attention, in which a target token asks the memory. A mask keeps it from looking at target tokens that are not written yet.
# * **Top right, the output.** A linear layer and a softmax turn the decoder's row into a probability for every word
#   of the vocabulary. The next token is chosen from them, and goes in at the bottom again.
#
# | symbol | meaning | in the paper's base model |
# |---|---|---|
# | $B$ | batch size: how many sentences at once | about 25,000 tokens in all |
# | $n$, $m$ | length of the source and of the target sentence, in tokens | |
# | $d$ | width: how many numbers describe a token (`d_model`) | 512 |
# | $N$ | number of layers on each side | 6 |
# | $h$ | number of attention heads in a layer | 8 |
# | $d_{ff}$ | inner width of the feed-forward block | 2048 |
# | $V$ | vocabulary size: how many different tokens there are | 37,000 |
#
# These letters mean the same in every chapter. *The paper* is "Attention Is All You Need" (Vaswani and others, 2017).

# %% [markdown]
# ## Predict first
#
# A source sentence has 7 tokens, and 5 target tokens are written so far. A small model has $d = 16$ and 24 words in its
# target vocabulary. *Which shape has the memory, and which shape have the scores at the top?* Decide, then run the cell.

# %%
torch.manual_seed(0)
model = parts.Transformer(src_vocab=20, tgt_vocab=24, d_model=16, h=2, d_ff=64, N=2).eval()
src = torch.randint(4, 20, (1, 7))  # one sentence, 7 token numbers   [B, n]
tgt = torch.randint(4, 24, (1, 5))  # 5 target tokens so far          [B, m]

memory = model.encode(src)
logits = model.decode(tgt, memory, src)
next_token = logits[0, -1].softmax(dim=0)
for name, tensor, shape in (
    ("source tokens", src, "[B, n]"),
    ("embedding", model.src_emb(src), "[B, n, d]"),
    ("memory", memory, "[B, n, d]"),
    ("logits", logits, "[B, m, V]"),
    ("next token", next_token, "[V], probabilities"),
):
    print(f"{name:15}{list(tensor.shape)!s:15}{shape}")
print(f"their sum      {next_token.sum():.4f}")

# %% [markdown]
# (*Logits* are the scores before the softmax.) The shape never changes on the way: $[B, n, d]$ in, $[B, n, d]$ out, layer after layer,
# and $[B, m, d]$ in the decoder.
# That is why layers can be stacked like bricks. Only at the very end $d$ becomes $V$.
#
# `parts` holds a finished version of everything you will build. So you can always look ahead, and a chapter you did not
# finish never stops you in a later one.

# %% [markdown]
# ## Who descends from which half
#
# Nearly every language model of today is one half of this map, or both.
#
# | half | who sees whom | models | good at |
# |---|---|---|---|
# | encoder only | every token sees every token, both ways | BERT, RoBERTa | understanding a text: search, classification, tagging |
# | decoder only | a token sees itself and what stands before it (causal) | GPT, Llama, Qwen, DeepSeek | writing on: chat, code |
# | both | the source both ways, the target causally, and across | the original Transformer, T5, BART | turning one text into another: translation, summary |
#
# A decoder-only model has no memory to ask, so its layers have no cross-attention: self-attention with a causal mask,
# feed-forward, and that is all. You build both halves, and so you will know all three kinds.

# %% [markdown]
# ## Why not a recurrent network?
#
# Before 2017 sentences went through a recurrent network (RNN). It reads one token after another and keeps a state $h_t$,
# a row of $d$ numbers, into which everything read so far must fit: $h_t = f(h_{t-1}, x_t)$, where $x_t$ is the row of token $t$.
# Two things follow.
#
# **It cannot be trained in parallel.** $h_{40}$ needs $h_{39}$, which needs $h_{38}$, and so on: 40 steps that must wait for each other,
# however many processors there are. Attention compares all pairs of tokens at once, in one matrix product.
#
# **Far is far.** What token 1 has to say to token 40 passes through 39 steps, and each one can weaken it.
# In attention every token reaches every other in **one** step.
#
# | for one layer | steps that must wait for each other | longest way between two tokens | work |
# |---|---|---|---|
# | recurrent | $n$ | $n - 1$ steps | $O(n \cdot d^2)$ |
# | self-attention | 1 | 1 step | $O(n^2 \cdot d)$ |
#
# ($O(n^2 \cdot d)$ reads "grows like $n^2 \cdot d$": twice the length, four times the work. That is the price, and we come back to it.)
#
# *Predict:* both have random weights, untrained. How much weaker is the signal over 39 tokens than over none, in an RNN: 10 times,
# a thousand times, or more? The picture measures it: it asks how strongly the last output reacts to each token, the gradient.

# %%
from transformer_lab.widgets.ch00 import reach

reach()

# %% [markdown]
# The vertical axis is logarithmic: each line is a factor of 100. The RNN's line falls by the same factor at every step, to about
# $10^{-13}$ at distance 39: training cannot learn from so little. Attention's line is flat: near or far makes no difference to it.
#
# Choose GRU or LSTM. They were invented against exactly this, and they do better (about $10^{-8}$ here, and training can open their gates wider), but the line still falls.
#
# Notice, too, that near tokens are *not* favoured by attention. It has no idea of near. Chapter 02 gives it one.

# %% [markdown]
# ## How this course works
#
# ### A TODO
#
# In each chapter some functions miss a few lines. They look like this one. Run the cell as it is; then put your code in place
# of the `raise` line, and run it again. (It is a warm-up and not graded.)


# %%
def double(x):
    # TODO 0.1: return twice x
    raise NotImplementedError("TODO 0.1")


with unfinished():  # turns the stub's error into a sentence, so that the rest of the notebook still runs
    print("double(21) =", double(21), "and should be 42")

# %% [markdown]
# ### A check
#
# After each TODO stands a cell with `check(...)`. It runs your code on prepared cases, tells you row by row what is right,
# and, when it recognises a mistake, says which. It never sees one right way of writing: a loop is as good as a one-liner.
# You may run it as often as you like.
#
# Here is a function with a mistake, from an exercise of the next chapter: the cosine between the rows of a table. What does the check say about it?


# %%
def first_try(table):
    return table @ table.T


check("1.6", first_try)

# %% [markdown]
# Three marks are possible: ✓ passed, ✗ failed (and why), ○ not tried yet. A row that builds on another waits until that one passes.
#
# ### A hint
#
# Stuck? `hint` gives three, one at a time: first a question, then the shapes, then pseudocode. Take away the `#`, and run this cell three times.

# %%
# hint("1.1")

# %% [markdown]
# ### Handing in
#
# You work on your own copy of the notebooks, in the folder `work/en`. Nothing overwrites it, neither an update of the course nor a second start.
#
# 1. Choose *Kernel → Restart Kernel and Run All Cells*: a notebook must run from a fresh start, not only in the order in which you tried things.
# 2. Save it, and hand in the file `NN_topic.ipynb` under its own name, as your instructor asks.
# 3. Leave the check cells as they are. The marks come from the same rows, on other numbers than the ones your check uses,
#    so what passes for the right reason passes there, too. Rows count one by one: half of the rows right is better than nothing.
#
# ### Where the numbers live
#
# Everything here is small enough for a processor without a graphics card. If there is one, the last chapter uses it.
# This machine says:

# %%
# NBVAL_IGNORE_OUTPUT
print(device_report())

# %% [markdown]
# (The first line of that cell tells the course's own tests not to compare the answer: it is another one on your machine.)
#
# ## Review questions
#
# Choose a letter. A wrong choice tells you which thought led there.

# %%
question("0-a")

# %%
question("0-b")

# %%
question("0-c")

# %% [markdown]
# ## To think about
#
# **If attention reaches everything in one step, why do we stack six layers of it?**
#
# <details><summary>A discussion</summary>
#
# One step moves information between tokens once. But what a token should ask often depends on what it has just learned. In "the cat that
# the dog chased slept", the verb "slept" first has to find out that "chased" belongs to the dog before it can pick the cat as its own subject.
# Later layers ask better questions, since their rows already hold the answers of earlier ones. The feed-forward block between them bends
# the rows, so that two layers are more than one larger layer.
#
# </details>
#
# **An RNN needs the same memory for a sentence of any length: one row. Attention keeps all rows. Who wins?**
#
# <details><summary>A discussion</summary>
#
# For writing, an RNN is cheaper: one step of constant cost for each new token. Attention looks back at all earlier tokens, so the cost of a token grows
# with the length of the text, and all earlier rows must be kept. For very long texts this hurts, and newer recurrent models
# (state-space models such as Mamba) take up the old idea in a form that can be trained in parallel. What they give up is exact recall: one
# row of fixed size cannot hold everything, while attention can always look a word up again.
#
# </details>
#
# ## What comes next
#
# You have seen the machine from the outside, and used the tools. Chapter **01** builds the first block: `TokenEmbedding`, which turns words into rows of numbers.
