# %% [markdown]
# # 08 · Output: from rows to sentences
#
# The decoder of chapter 07 ends in a row of $d$ numbers at each place. This chapter makes **words** of them: a score for every word of
# the vocabulary, a loss to learn from, and three ways to write a sentence.
#
# In the middle of it all parts of the course become one class, `Transformer`.
# Plan for about 100 minutes; after "The whole machine" is a good place for a break.

# %% setup=true
import math

import torch
from torch import nn

from transformer_lab import check, hint, question, unfinished

# Finished parts of earlier chapters. Your own fit in the same place:
#   from transformer_lab import mine
#   Decoder = mine.load("Decoder")
from transformer_lab.parts import (
    Decoder,
    Encoder,
    PositionalEncoding,
    TokenEmbedding,
    initialise,
    padding_mask,
    target_mask,
)

# %% [markdown]
# ## Where we are
#
# The lit block stands at the very top, after the last decoder layer.

# %%
from transformer_lab.widgets.architecture import architecture

architecture("output")

# %% [markdown]
# ## Predict first
#
# A model has width $d = 512$ and a vocabulary of $V = 37\,000$ words. One decoder layer has about $16 d^2$ weights (chapter 07).
#
# *The output layer turns a row of $d$ numbers into one score for every word. How many decoder layers would fit into its weights:
# less than one, about one, or more than four?* Decide, then run the cell.

# %%
d, V = 512, 37_000
print(f"output layer:  d · V  = {d * V:>10,} weights")
print(f"decoder layer: 16 d²  = {16 * d * d:>10,} weights")
print(f"ratio: {d * V / (16 * d * d):.1f}")

# %% [markdown]
# More than four. The largest matrix of a small Transformer is neither attention nor feed-forward: it is the vocabulary. And the embedding
# table has the same size once more. You will see below how the two become one.

# %% [markdown]
# ## Logits
#
# At each place the decoder's row $x$ (width $d$) is compared with one vector $w_v$ for every word $v$ of the vocabulary, by a dot product. The result is a
# score, the word's **logit**:
#
# $$\text{logit}_v = x \cdot w_v, \qquad [B, m, d] \times [d, V] \to [B, m, V].$$
#
# The *softmax* of chapter 03 turns the $V$ logits of a place into probabilities: all positive, summing to 1, and the larger the logit the larger the probability.
#
# The layer itself returns **logits**, not probabilities. The loss needs logarithms of probabilities, which are computed
# more exactly from logits; and greedy writing needs only the largest logit, for which no softmax is needed at all.
#
# ### TODO 8.1
#
# Attribute `proj`: a linear layer from `d_model` to `vocab_size` **without bias** (`bias=False`). Stuck? Run `hint("8.1")`; every call goes one step further, here and for all TODOs below.


# %% todo="8.1"
class OutputLayer(nn.Module):
    """A score for every word at every place: x [B, m, d] -> logits [B, m, V]."""

    def __init__(self, d_model, vocab_size):
        super().__init__()
        # TODO 8.1: self.proj, a linear layer without bias
        ### BEGIN SOLUTION
        self.proj = nn.Linear(d_model, vocab_size, bias=False)
        ### END SOLUTION

    def forward(self, x):  # x: [B, m, d]
        # TODO 8.1: the logits   [B, m, V]
        ### BEGIN SOLUTION
        return self.proj(x)
        ### END SOLUTION


# %% test="8.1" points=2
check("8.1", OutputLayer)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.1", OutputLayer)
### END HIDDEN TESTS

# %% [markdown]
# ## One table for reading and writing
#
# The embedding has one vector of width $d$ for every word, used when a word is **read**. The output layer has one vector of width $d$ for every word, used when a
# word is **written**. Both say what the word means. So why not use the same?
#
# That is *weight tying*: one tensor `[V, d]`, in two places. It saves $d \cdot V$ weights, and a rare word learns from every place where it is read *and* where it is scored. PyTorch makes it easy:
# `nn.Embedding(V, d).weight` and `nn.Linear(d, V).weight` both have the shape `[V, d]`.
#
# Sharing is not copying. A copy is equal today and different after the first training step. In Python, `a = b` gives one object a second name; that also works for
# the attribute of a module.
#
# ### TODO 8.2
#
# `embedding` has an attribute `emb` (an `nn.Embedding`, as in chapter 01), `output` has `proj` (as above). Afterwards both must hold **one parameter**. Nothing needs to be
# returned.


# %% todo="8.2"
def tie_weights(embedding, output):
    """Let embedding.emb and output.proj use one and the same parameter."""
    # TODO 8.2: give the parameter of the one to the other
    ### BEGIN SOLUTION
    output.proj.weight = embedding.emb.weight
    ### END SOLUTION


# %% test="8.2" points=3
check("8.2", tie_weights)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.2", tie_weights)
### END HIDDEN TESTS

# %% [markdown]
# Count with your own functions:

# %%
with unfinished():
    embedding, output = TokenEmbedding(1000, 64), OutputLayer(64, 1000)
    both = nn.ModuleList([embedding, output])
    print("apart:", f"{sum(p.numel() for p in both.parameters()):,}", "weights")
    tie_weights(embedding, output)
    print("tied: ", f"{sum(p.numel() for p in both.parameters()):,}", "weights")

# %% [markdown]
# ## The loss
#
# At each place the right token is known. The model gave it some probability $p$. The loss at that place is $-\log p$: 0 when the model was certain and right, and the larger the less it
# believed in the truth. It is called *cross-entropy*.
#
# $$\text{loss} = \frac{1}{\#\text{real tokens}} \sum_{\text{real tokens}} -\log \mathrm{softmax}(\text{logits})_{\text{right token}}$$
#
# Places of padding do not count: neither in the sum nor in the number it is divided by.
#
# ### By hand
#
# Three words, logits $(2, 1, 0)$, the right word is the first.
#
# * $e^2, e^1, e^0 = 7.389, 2.718, 1$, sum $11.107$
# * probabilities $(0.665, 0.245, 0.090)$
# * loss $-\log 0.665 = 0.408$
#
# *What would the loss be if all three logits were equal?* Then $p = 1/3$ and the loss is $\log 3 = 1.099$. An untrained model with $V$ words knows nothing, so its loss should start near $\log V$. If it
# starts elsewhere, look for a mistake before you train for an hour.
#
# ### Label smoothing
#
# A loss of 0 would need a logit of $+\infty$, and a model that chases it becomes overconfident. The paper asks for a little less: the target is no longer "1 for the right word, 0 for the others", but
#
# * every word gets $\varepsilon / V$,
# * the right word gets $1 - \varepsilon$ on top.
#
# With $\varepsilon = 0.1$ and $V = 3$ the target is $(0.933, 0.033, 0.033)$. Written with log-probabilities $\ell_v$, this is
#
# $$-(1 - \varepsilon)\, \ell_{\text{right}} - \varepsilon \cdot \frac1V \sum_v \ell_v .$$
#
# For the example: $\ell = (-0.408, -1.408, -2.408)$, so $0.9 \cdot 0.408 + 0.1 \cdot 1.408 = 0.508$.
#
# ### TODO 8.3
#
# By hand, without the ready-made loss. Two functions help: `torch.log_softmax(logits, dim=-1)` stays finite where `log(softmax(…))` would not, and
# `log_probs.gather(-1, target[..., None])` picks at each place the entry of the right token; its result has the shape `[B, m, 1]`, and `.squeeze(-1)` drops the last axis.
# `losses[mask]` keeps the entries where `mask` is True.


# %% todo="8.3"
def sequence_loss(logits, target, pad_id=0, label_smoothing=0.0):
    """Cross-entropy over real tokens: logits [B, m, V], target [B, m] -> a single number."""
    # TODO 8.3: log-probabilities, those of the right tokens, smoothing, the mean over real tokens
    ### BEGIN SOLUTION
    log_probs = torch.log_softmax(logits, dim=-1)  # [B, m, V]
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)  # [B, m]
    losses = -(1 - label_smoothing) * right - label_smoothing * log_probs.mean(dim=-1)  # [B, m]
    return losses[target != pad_id].mean()
    ### END SOLUTION


# %% test="8.3" points=5
check("8.3", sequence_loss)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.3", sequence_loss)
### END HIDDEN TESTS

# %% [markdown]
# The example by hand, and PyTorch's own `F.cross_entropy` beside yours. (It wants the classes on axis 1, hence the `transpose`.)

# %%
from torch.nn import functional as F

with unfinished():
    one_place, first = torch.tensor([[[2.0, 1.0, 0.0]]]), torch.tensor([[0]])
    for epsilon in (0.0, 0.1):
        print(f"ε = {epsilon}: {sequence_loss(one_place, first, pad_id=9, label_smoothing=epsilon):.3f}")

    torch.manual_seed(0)
    logits, target = torch.randn(2, 5, 12), torch.tensor([[4, 7, 2, 0, 0], [5, 5, 9, 11, 2]])
    torchs = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=0, label_smoothing=0.1)
    yours = sequence_loss(logits, target, label_smoothing=0.1)
    print(f"torch {torchs:.4f}, yours {yours:.4f}")

# %% [markdown]
# ## The whole machine
#
# Now everything you built becomes one module. Follow a batch through it:
#
# | step | what | shape |
# |---|---|---|
# | source | `src_emb`, `pos`, `dropout` | `[B, n]` → `[B, n, d]` |
# | encode | `encoder`, with the source's padding mask | `[B, n, d]`, the memory |
# | target | `tgt_emb`, `pos`, `dropout` | `[B, m]` → `[B, m, d]` |
# | decode | `decoder`: target mask for itself, the source's padding mask across | `[B, m, d]` |
# | output | `output`, whose matrix is the target embedding's table | `[B, m, V]` |
#
# Why three methods? Training calls `forward`, which encodes and decodes. Whoever *writes* a sentence encodes the source **once** and then decodes again for every new token. So `decode`
# takes the memory as it is handed, and needs `src` only to know where the padding is.
#
# Details that matter:
#
# * `tgt_in` is shifted already (chapter 07). The model does not shift it again.
# * `TokenEmbedding` multiplies by $\sqrt d$ itself. Positions are added once, on both sides. Dropout acts on the sum of word and position.
# * Source and target have vocabularies of their own, so there are two tables. The output layer writes *target* words: it is tied to the **target** embedding.
# * The padding id is 0, the default of `padding_mask` and `target_mask`.
#
# The attributes `src_emb`, `tgt_emb`, `pos`, `dropout`, `encoder`, `decoder`, `output` are made for you; chapter 09 relies on their names. `initialise` sets the starting weights
# (matrices by Glorot's rule, embeddings with variance $1/d$, so that the logits start near 1 in size) and the dropout inside the layers.
#
# ### TODO 8.4
#
# Four short gaps: tie the weights; encode; decode; forward. (`hint("8.4")`)


# %% todo="8.4"
class Transformer(nn.Module):
    """The encoder-decoder of "Attention Is All You Need"; makes its own masks."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb = TokenEmbedding(src_vocab, d_model)
        self.tgt_emb = TokenEmbedding(tgt_vocab, d_model)
        self.pos = PositionalEncoding(d_model, max_len)
        self.dropout = nn.Dropout(dropout)
        self.encoder = Encoder(d_model, h, d_ff, N, norm)
        self.decoder = Decoder(d_model, h, d_ff, N, norm)
        self.output = OutputLayer(d_model, tgt_vocab)
        # TODO 8.4: one tensor for the target embedding and the output layer
        ### BEGIN SOLUTION
        tie_weights(self.tgt_emb, self.output)
        ### END SOLUTION
        initialise(self, dropout)

    def encode(self, src):
        """src [B, n] -> memory [B, n, d]"""
        # TODO 8.4: embed and place the source, then the encoder with the source's padding mask
        ### BEGIN SOLUTION
        x = self.dropout(self.pos(self.src_emb(src)))  # [B, n, d]
        return self.encoder(x, padding_mask(src))
        ### END SOLUTION

    def decode(self, tgt_in, memory, src):
        """tgt_in [B, m], memory [B, n, d], src [B, n] -> logits [B, m, V]"""
        # TODO 8.4: embed and place the target, then the decoder with both masks, then the output layer
        ### BEGIN SOLUTION
        x = self.dropout(self.pos(self.tgt_emb(tgt_in)))  # [B, m, d]
        x = self.decoder(x, memory, target_mask(tgt_in), padding_mask(src))  # [B, m, d]
        return self.output(x)
        ### END SOLUTION

    def forward(self, src, tgt_in):
        """src [B, n], tgt_in [B, m] -> logits [B, m, V]"""
        # TODO 8.4: decode what encode gives
        ### BEGIN SOLUTION
        return self.decode(tgt_in, self.encode(src), src)
        ### END SOLUTION


# %% test="8.4" points=10
check("8.4", Transformer)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.4", Transformer)
### END HIDDEN TESTS

# %% [markdown]
# *Predict the loss* of a fresh model with $V = 200$ target words, before any training. Then run the cell.

# %%
with unfinished():
    torch.manual_seed(0)
    model = Transformer(src_vocab=150, tgt_vocab=200, d_model=64, h=4, d_ff=256, N=2).eval()
    src, target = torch.randint(4, 150, (8, 12)), torch.randint(4, 200, (8, 10))
    tgt_in = torch.cat([torch.ones(8, 1, dtype=torch.long), target[:, :-1]], dim=1)  # shifted right
    loss = sequence_loss(model(src, tgt_in), target)
    print(f"loss {loss:.1f}, log V = {math.log(200):.1f}")
    print(f"{sum(p.numel() for p in model.parameters()):,} weights")

# %% [markdown]
# A little above $\log V$: the logits are not all equal at the start but random with a size near 1, and random guesses cost a little more than admitting ignorance.
#
# **Break it on purpose.** Leave the causal mask out (`padding_mask(tgt_in)` where `target_mask(tgt_in)` stands) and run the check. Which rows notice, and what do they say? The loss of the
# fresh model hardly changes: an untrained model does not know yet how to cheat. That is what makes this mistake so expensive. Put the mask back.

# %% [markdown]
# ## Writing: always the likeliest word
#
# The model gives probabilities for the *next* token. To write a sentence, choose one, append it, ask again. The simplest choice is the likeliest token: **greedy**.
#
# From here on the model is hidden behind one function: `next_log_probs(prefix)` takes the list of tokens so far, beginning with `bos_id`, and returns the log-probability
# of each token of the vocabulary, shape `[V]`. So your functions work with any model, also with this tiny one, whose probabilities fit into a table:

# %%
from transformer_lab.widgets.ch08 import BOS, EOS, WORDS, toy_log_probs

for prefix in ([], ["a"], ["the"], ["sleep"], ["the", "cat"], ["a", "cat"]):
    probs = toy_log_probs([BOS, *(WORDS.index(word) for word in prefix)]).exp()
    best = ", ".join(f"{WORDS[i]} {probs[i]:.2f}" for i in probs.argsort(descending=True)[:3].tolist())
    print(f"{'<s> ' + ' '.join(prefix):<14} -> {best}, …")

# %% [markdown]
# ### TODO 8.5
#
# Return the generated tokens as a list of whole numbers: without `bos_id`, with `eos_id` when it was reached, at most `max_len` of them.
# `scores.argmax()` gives a tensor; `.item()` makes a whole number of it.


# %% todo="8.5"
def greedy(next_log_probs, bos_id, eos_id, max_len):
    """The likeliest token, again and again, until eos_id or max_len tokens."""
    prefix = [bos_id]
    # TODO 8.5: at most max_len times: append the likeliest next token; stop after eos_id. Return without bos_id
    ### BEGIN SOLUTION
    for _ in range(max_len):
        prefix.append(next_log_probs(prefix).argmax().item())
        if prefix[-1] == eos_id:
            break
    return prefix[1:]
    ### END SOLUTION


# %% test="8.5" points=4
check("8.5", greedy)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.5", greedy)
### END HIDDEN TESTS

# %%
with unfinished():
    print("greedy writes:", " ".join(WORDS[token] for token in greedy(toy_log_probs, BOS, EOS, max_len=6)))

# %% [markdown]
# And the real model? It needs a small adapter, which chapter 09 will use: encode once, then decode the prefix and keep the last place.

# %%
with unfinished(), torch.no_grad():
    torch.manual_seed(0)
    model = Transformer(src_vocab=150, tgt_vocab=200, d_model=64, h=4, d_ff=256, N=2).eval()
    sentence = torch.randint(4, 150, (1, 12))
    memory = model.encode(sentence)  # once for the whole translation

    def next_of_model(prefix):
        return model.decode(torch.tensor([prefix]), memory, sentence)[0, -1].log_softmax(dim=-1)

    print("an untrained model writes", len(greedy(next_of_model, 1, 2, max_len=8)), "tokens of nonsense")

# %% [markdown]
# ## Writing with chance
#
# Greedy always says the same. For a story or a conversation one draws the next token at random, by its probability; but the many unlikely words together hold enough mass to ruin a sentence
# now and then. Three controls tame the chance. They act **in this order**:
#
# 1. **temperature** $T$: divide the logits by $T$. Below 1 differences grow, above 1 they shrink. Towards 0 all probability goes to the likeliest token, so $T = 0$ is *defined* as argmax
#    (dividing by 0 would not do).
# 2. **top-k**: only the $k$ likeliest tokens may stay; renormalise, so that they sum to 1.
# 3. **top-p** (nucleus): of what is left, only the smallest set of likeliest tokens whose mass is **at least** $p$; renormalise.
#
# Top-k keeps a fixed number, top-p adapts: where the model is certain one or two words stay, where anything may follow many do.
#
# ### By hand
#
# Probabilities $(0.5, 0.3, 0.15, 0.05)$.
#
# * $k = 3$: $(0.5, 0.3, 0.15)/0.95 = (0.526, 0.316, 0.158, 0)$.
# * then $p = 0.8$: $0.526$ is not enough; $0.526 + 0.316 = 0.842 \ge 0.8$, so two stay: $(0.625, 0.375, 0, 0)$.
#
# The token that **reaches** $p$ belongs to the set. Otherwise a token with more than $p$ would shut out everything, itself included.
#
# ### TODO 8.6
#
# The gaps below are one step each. A logit of $-\infty$ becomes the probability 0 in a softmax: `logits.masked_fill(mask, -math.inf)`. For top-p, sort: `probs.sort(descending=True)` gives the sorted values
# and the indices where they came from; with `before`, the mass of all likelier tokens, a token stays while `before < p`.


# %% todo="8.6"
def sampling_probs(logits, temperature=1.0, top_k=None, top_p=None):
    """Probabilities to draw the next token with: logits [V] -> [V], summing to 1."""
    # TODO 8.6: temperature 0 is argmax: all probability on the likeliest token; else divide
    ### BEGIN SOLUTION
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    logits = logits / temperature
    ### END SOLUTION
    # TODO 8.6: if top_k is given, set the logits below the k-th largest to -∞
    ### BEGIN SOLUTION
    if top_k is not None:
        kth = logits.sort(descending=True).values[:top_k][-1]
        logits = logits.masked_fill(logits < kth, -math.inf)
    ### END SOLUTION
    probs = torch.softmax(logits, dim=-1)
    # TODO 8.6: if top_p is given, keep the smallest set of likeliest tokens with mass at least p
    ### BEGIN SOLUTION
    if top_p is not None:
        ranked, order = probs.sort(descending=True)
        before = ranked.cumsum(dim=0) - ranked  # the mass of all likelier tokens
        probs = probs.index_fill(0, order[before >= top_p], 0.0)
    ### END SOLUTION
    return probs / probs.sum()


# %% test="8.6" points=5
check("8.6", sampling_probs)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.6", sampling_probs)
### END HIDDEN TESTS

# %% [markdown]
# The picture continues *the cat sat on the …* with **your** function. Grey: the model's probabilities. Blue: after the three filters.
#
# *Before you move anything:* with $p = 0.8$, will a higher temperature keep more words or fewer? And does a temperature of 0 leave anything for $k$ and $p$ to do?

# %%
from transformer_lab.widgets.ch08 import decode_tree, sampling_bars

sampling_bars(sampling_probs)

# %% [markdown]
# More: a higher temperature flattens the distribution, so more words are needed to reach the mass $p$. That is why the order matters: with $p$ first, the temperature could not change the set.

# %% [markdown]
# ## Writing with foresight: beam search
#
# In translation there is a best sentence, and chance only hurts. But greedy need not find it. Look at the table above: greedy begins with *a*, which is a little likelier than *the*. After *a* the model
# is undecided and every continuation is weak; after *the* it would have been sure.
#
# The probability of a sentence is the product of its tokens' probabilities; logarithms turn the product into a sum:
#
# $$\log P(y) = \sum_t \log p(y_t \mid y_1 \dots y_{t-1}).$$
#
# **Beam search** keeps not one beginning but the `width` best. A beginning is called a *hypothesis*. The rules, exactly:
#
# 1. Start with one open hypothesis: no token yet, sum 0.
# 2. At each step continue **every** open hypothesis by **every** token of the vocabulary. Of all these continuations the `width` best by summed log-probability survive.
# 3. Survivors that end in `eos_id` are *finished*: set them aside. The others are the new open ones.
# 4. Stop when no open one is left, or after `max_len` steps.
# 5. Finished and still open hypotheses compete: the best **score** wins. Return its tokens, like `greedy`.
#
# $$\text{score} = \frac{\log P(y)}{\text{length}^{\,\alpha}}, \qquad \alpha = \texttt{length\_penalty},$$
#
# where the length counts generated tokens, `eos_id` included. Why divide? Every further token multiplies by a number below 1, so long sentences have smaller probabilities, and the plain sum ($\alpha = 0$) prefers short ones. With $\alpha = 1$ the score is
# the mean log-probability of a token.
#
# With width 1 this is greedy. If two hypotheses have exactly the same sum, either may stand first.
#
# ### By hand, width 2
#
# From the table: *a* 0.45, *the* 0.35, *sleep* 0.19. Survivors: *a*, *the*. Their best continuations: *the cat* $0.35 \cdot 0.80 = 0.28$, *a cat* $0.45 \cdot 0.40 = 0.18$, *a dog* $0.45 \cdot 0.35 = 0.158$. Survivors: *the cat*, *a cat*.
# The leader has changed: *the* was second and is now in front.
#
# ### TODO 8.7
#
# Four gaps (`hint("8.7")`). A hypothesis is a pair `(tokens, total)`. Two idioms: `sorted(pairs, key=lambda pair: pair[1], reverse=True)` sorts by the total, large to small; `max(pairs, key=…)` finds the
# largest. `.tolist()` turns a tensor into a list of plain numbers.


# %% todo="8.7"
def beam_search(next_log_probs, bos_id, eos_id, width, max_len, length_penalty=0.0):
    """The best of the sentences that a beam of `width` hypotheses finds; returns like greedy."""
    still_open, finished = [([], 0.0)], []
    for _step in range(max_len):
        # TODO 8.7: continuations: every open hypothesis with every token, as (tokens, total) pairs
        ### BEGIN SOLUTION
        continuations = []
        for tokens, total in still_open:
            log_probs = next_log_probs([bos_id, *tokens]).tolist()
            continuations += [([*tokens, token], total + lp) for token, lp in enumerate(log_probs)]
        ### END SOLUTION
        # TODO 8.7: best: the `width` best continuations by total
        ### BEGIN SOLUTION
        best = sorted(continuations, key=lambda pair: pair[1], reverse=True)[:width]
        ### END SOLUTION
        # TODO 8.7: those that end in eos_id join `finished`, the others are the new `still_open`
        ### BEGIN SOLUTION
        finished += [pair for pair in best if pair[0][-1] == eos_id]
        still_open = [pair for pair in best if pair[0][-1] != eos_id]
        ### END SOLUTION
        if not still_open:
            break
    # TODO 8.7: the tokens of the hypothesis with the best score, finished or not
    ### BEGIN SOLUTION
    return max(finished + still_open, key=lambda pair: pair[1] / len(pair[0]) ** length_penalty)[0]
    ### END SOLUTION


# %% test="8.7" points=6
check("8.7", beam_search)
### BEGIN HIDDEN TESTS
from grader import grade

grade("8.7", beam_search)
### END HIDDEN TESTS

# %% [markdown]
# The tree is drawn by watching which prefixes *your* `beam_search` asks for. Orange is what it returned, the dashed line is the greedy path.
#
# *Predict:* with width 3 the hypothesis *sleep* survives the first step. Which sentence wins then, and what does a length penalty of 1 change?

# %%
decode_tree(beam_search)

# %% [markdown]
# With width 2 the beam finds *the cat sleeps* (probability 0.179), where greedy writes *a cat sleeps* (0.086). With width 3 it finds *sleep* with 0.184: two tokens, both likely. It *is* the most probable sentence,
# and as a translation it may still be the worse one. The length penalty compares per token and brings *the cat sleeps* back.
#
# A wider beam finds more probable sentences, not always better ones: very wide beams love very short sentences.

# %% [markdown]
# ## Review

# %%
question("8-a")

# %%
question("8-b")

# %%
question("8-c")

# %%
question("8-d")

# %%
question("8-e")

# %%
question("8-f")

# %%
question("8-g")

# %% [markdown]
# ## Think further
#
# <details><summary><b>Why softmax, and not simply each score divided by the sum of scores?</b></summary>
#
# Scores can be negative, so such shares could be negative or divide by zero. Softmax makes everything positive. It depends on differences only, so adding 5 to all scores changes nothing; and with $-\log$ its gradient is as simple as
# can be: probability minus target. Its weakness: it never gives an exact 0, and the exponential exaggerates large differences, so a network can saturate it. Scaling (chapter 03), normalisation of queries and keys, capping the logits, and
# sparse relatives of softmax are ways around.
# </details>
#
# <details><summary><b>With V = 150,000 words the logits of one long text are larger than all other activations. What can one do?</b></summary>
#
# At 8,192 places that is $8192 \cdot 150\,000 \approx 1.2 \cdot 10^9$ numbers, almost 5 GB in float32. The loss needs only one number for each place, so it can be computed piece by piece: a block of places (or of words) at a time, keeping running sums, never
# the whole table. Another way is a smaller vocabulary of word pieces, at the price of longer sequences.
# </details>
#
# <details><summary><b>Would you use beam search for a chat?</b></summary>
#
# Rarely. Translation has a narrow target, and the likeliest sentence is usually good. In open conversation the likeliest sentence is dull and repetitive: people do not talk in maximally probable sentences. There one samples, with a moderate temperature and top-p. Where an answer is
# checkable, as in arithmetic or code, one often samples many answers and picks by checking.
# </details>

# %% [markdown]
# ## What you built
#
# * the output layer, tied to the embedding: one table for reading and writing;
# * the loss, by hand, equal to PyTorch's;
# * **the whole Transformer**;
# * three ways to write: greedy, sampling, beam search.
#
# All it lacks is something to say. In **09 · Translation** you train it, and it will translate sentences that it has never seen.
