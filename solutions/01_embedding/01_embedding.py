# %% [markdown]
# # 01 · Embedding
#
# A model computes with numbers, and a sentence is made of words. This chapter builds the first block of the machine,
# which turns each word into a row of $d$ numbers that the model can learn.
#
# You will write `TokenEmbedding`, the two functions that turn sentences into token numbers, and two small ones that show what
# the block really does. Plan for about 60 minutes.

# %% setup=true
import math

import torch
from torch import nn
from torch.nn import functional as F

from transformer_lab import check, hint, question, unfinished

# %% [markdown]
# ## Where we are
#
# The lit block stands at the bottom of both sides: once for the source language, once for the target language.

# %%
from transformer_lab.widgets.architecture import architecture

architecture("embedding")

# %% [markdown]
# ## Predict first
#
# Every word of a vocabulary gets a number: the cat is 5, eats is 6, fish is 7. Why not feed these numbers to the model as they are?
#
# *Suppose we do. Which of these would the model have to believe: that "eats" lies between "cat" and "fish"? That "fish" is more than "cat"?
# That the mean of "cat" and "fish" is "eats"?* Decide before you read on.
#
# It would have to believe all three. A number has an order and a size, and $(5 + 7) / 2 = 6$. Words have nothing of the kind: the numbers are
# only labels, given in the order in which the words happened to be met.

# %% [markdown]
# ## Three ways to write a word as numbers
#
# | symbol | meaning | in the paper | here |
# |---|---|---|---|
# | $V$ | vocabulary size: how many different tokens there are | 37,000 | 8 to 18 |
# | $d$ | width: how many numbers describe a token (`d_model`) | 512 | 2 to 6 |
# | $B$ | batch size: how many sentences at once | | 2, 3 |
# | $n$ | length of a sentence in tokens | | 3 to 5 |
# | $E$ | the table of all words' rows, of shape $[V, d]$ | | |
#
# **The number itself.** Small, but wrong, as you have just seen.
#
# **A one-hot vector.** A row of $V$ zeros with a single 1 at the word's own place. With $V = 5$, word 2 is $[0, 0, 1, 0, 0]$.
# Now no word lies between two others. But it is poor in three ways:
#
# * it is *wide*: $V$ numbers for each token;
# * it is *sparse*: all but one of them are 0;
# * it is *mute*: any two different words are at a right angle to each other. "cat" is as far from "dog" as from "reads", so what the model
#   learns about one tells it nothing about the other.
#
# **An embedding.** Each word gets $d$ numbers of its own, any numbers, and training moves them. The table of all these rows is $E$, of shape
# $[V, d]$. Words that are used alike can come to lie close together.

# %%
B, n, V, d = 32, 50, 37_000, 512  # a batch of the paper's size of vocabulary
print(f"token numbers   {B * n * 8 / 1e6:7.2f} MB")
print(f"one-hot vectors {B * n * V * 4 / 1e6:7.2f} MB")
print(f"embeddings      {B * n * d * 4 / 1e6:7.2f} MB")

# %% [markdown]
# One batch of one-hot vectors would take 237 MB, of which all but one number in 37,000 is 0. The embedded batch takes 3.3 MB.
#
# ## The lookup
#
# To embed word number $w$, take row $w$ of the table, and multiply it by $\sqrt d$:
#
# $$\text{TokenEmbedding}(w) = \sqrt{d} \; E_w$$
#
# For a batch of sentences with the token numbers `ids` of shape $[B, n]$ this gives $[B, n, d]$: every number is replaced by a row of $d$ numbers.
# Why the factor $\sqrt d$? That has a section of its own, below. First do it.
#
# ### By hand, $V = 3$, $d = 4$
#
# Let the table be
#
# | word | | | | |
# |---|---|---|---|---|
# | 0 | 0 | 0 | 0 | 0 |
# | 1 | 1 | 0.5 | −1 | 2 |
# | 2 | 0.2 | −0.4 | 0.6 | 0 |
#
# and the sentence `ids = [[2, 1, 2]]`, so $B = 1$ and $n = 3$. The factor is $\sqrt 4 = 2$. Cover the answer and work it out:
#
# | token | | | | |
# |---|---|---|---|---|
# | 2 | 0.4 | −0.8 | 1.2 | 0 |
# | 1 | 2 | 1 | −2 | 4 |
# | 2 | 0.4 | −0.8 | 1.2 | 0 |
#
# The same word gives the same row, wherever it stands. (That is a gap, and chapter 02 fills it.)

# %% [markdown]
# ## Your turn: TODO 1.1 and 1.2
#
# Put your code in place of each `raise NotImplementedError(...)`. Each TODO is one line.
#
# * **1.1** make the table. `torch.nn` has a class for it, and its documentation names the two sizes it wants. Keep it as `self.emb`:
#   later chapters look for it under this name.
# * **1.2** look up the rows of `ids` and multiply them by $\sqrt d$.
#
# Three things worth knowing about PyTorch here:
#
# * A block is a class that inherits from `nn.Module`. What it keeps is made in `__init__`; what it computes stands in `forward`.
# * A module is called like a function: `block(x)` runs `forward(x)`. The table of `torch.nn` is a module itself.
# * `math.sqrt(4)` is 2.0. A number times a tensor multiplies every entry.
#
# Stuck? Run `hint("1.1")` or `hint("1.2")` in a cell of your own. Every call goes one step further.


# %% todo="1.1"
class TokenEmbedding(nn.Module):
    """A table with one row of d_model numbers for every word; ids [B, n] become rows [B, n, d]."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        # TODO 1.1: the table, as the attribute emb: vocab_size rows of d_model numbers   [V, d]
        ### BEGIN SOLUTION
        self.emb = nn.Embedding(vocab_size, d_model)
        ### END SOLUTION

    def forward(self, ids):  # ids: [B, n]
        # TODO 1.2: the row of every id, times the square root of d_model   [B, n, d]
        ### BEGIN SOLUTION
        return self.emb(ids) * math.sqrt(self.emb.embedding_dim)
        ### END SOLUTION


# %% test="1.1" points=5
check("1.1", TokenEmbedding)
### BEGIN HIDDEN TESTS
from grader import grade

grade("1.1", TokenEmbedding)
### END HIDDEN TESTS

# %% [markdown]
# Does it agree with the calculation by hand? We write the same table into your block:

# %%
with unfinished():
    by_hand = TokenEmbedding(vocab_size=3, d_model=4)
    table = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.5, -1.0, 2.0], [0.2, -0.4, 0.6, 0.0]])
    with torch.no_grad():
        by_hand.emb.weight.copy_(table)
    print(by_hand(torch.tensor([[2, 1, 2]])).detach())

# %% [markdown]
# ### Only what is read can learn
#
# *Predict:* the sentence `[[2, 1, 2]]` goes through the block, and some loss sends a gradient back. Which rows of the table get one?

# %%
with unfinished():
    small = TokenEmbedding(vocab_size=3, d_model=4)
    small(torch.tensor([[2, 1, 2]])).sum().backward()
    print(small.emb.weight.grad)

# %% [markdown]
# Row 0 was not read, so it does not move. Row 2 was read twice, so its gradient is twice that of row 1: here $2 + 2$ against $2$, where each 2 is the
# factor $\sqrt 4$. A word that training never meets keeps the random numbers it was born with. That is one reason for a token that stands for
# all rare words, `<unk>`, which comes next.

# %% [markdown]
# ## From sentences to token numbers
#
# Your block wants numbers. Where do they come from? From a **vocabulary**, a dict that gives each word its number. Four special tokens always come first:
#
# | token | number | stands for |
# |---|---|---|
# | `<pad>` | 0 | nothing: it fills short sentences up, so that a batch is a rectangle |
# | `<s>` | 1 | the beginning of a sentence |
# | `</s>` | 2 | its end |
# | `<unk>` | 3 | a word that the vocabulary does not have |
#
# Then follow the words, in the order in which they first appear.
#
# *By hand:* the sentences "the cat eats" and "the fish" give the = 4, cat = 5, eats = 6, fish = 7. The second "the" gets no new number.
#
# * **1.3** `build_vocab(sentences)`: a sentence is a list of words, and the result is the dict, word → number. Words are taken as they are: "The" and "the" differ.
#
# (Real systems cut rare words into pieces, so that nearly nothing is unknown. More about this at the end.)


# %% todo="1.3"
def build_vocab(sentences):
    """Number the words: the four special tokens 0 to 3, then each word as it first appears.

    sentences: a list of sentences, each a list of words. Returns a dict, word -> number.
    """
    # TODO 1.3: start with the special tokens, then go through the words and number the new ones
    ### BEGIN SOLUTION
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for sentence in sentences:
        for word in sentence:
            if word not in vocab:
                vocab[word] = len(vocab)
    return vocab
    ### END SOLUTION


# %% test="1.3" points=3
check("1.3", build_vocab)
### BEGIN HIDDEN TESTS
from grader import grade

grade("1.3", build_vocab)
### END HIDDEN TESTS

# %% [markdown]
# * **1.4** `encode(sentences, vocab)`: the numbers of the words, as a tensor $[B, n_{max}]$ of whole numbers (int64, which `torch.tensor` makes of Python's
#   integers by itself). $n_{max}$ is the length of the longest sentence; shorter ones are filled up **on the right** with `<pad>`. A word that `vocab` does not have becomes `<unk>`.
#
# *By hand:* with the vocabulary above, "the cat eats fish" and "the dog" become
#
# $$\begin{bmatrix} 4 & 5 & 6 & 7 \\ 4 & 3 & 0 & 0 \end{bmatrix}$$
#
# Why on the right? So that the first word of each sentence stands at position 0, where chapter 02 will count from.


# %% todo="1.4"
def encode(sentences, vocab):
    """Turn sentences (lists of words) into ids: a tensor [B, n_max] of int64, filled up on the right."""
    # TODO 1.4: ids of the words, <unk> for unknown ones, <pad> after the end of short sentences
    ### BEGIN SOLUTION
    n_max = max(len(sentence) for sentence in sentences)
    rows = []
    for sentence in sentences:
        ids = [vocab.get(word, vocab["<unk>"]) for word in sentence]
        rows.append(ids + [vocab["<pad>"]] * (n_max - len(ids)))
    return torch.tensor(rows)  # [B, n_max]
    ### END SOLUTION


# %% test="1.4" points=4
check("1.4", encode)
### BEGIN HIDDEN TESTS
from grader import grade

grade("1.4", encode)
### END HIDDEN TESTS

# %% [markdown]
# Now the three of them in a row, words to numbers to rows:

# %%
with unfinished():
    vocab = build_vocab([["the", "cat", "eats"], ["the", "fish"]])
    ids = encode([["the", "cat", "eats", "fish"], ["the", "dog"]], vocab)
    torch.manual_seed(0)
    embedding = TokenEmbedding(len(vocab), d_model=6)
    print(vocab)
    print(ids, list(ids.shape), "[B, n]")
    print(list(embedding(ids).shape), "[B, n, d]")

# %% [markdown]
# ### Break it on purpose
#
# The table has one row for every entry of the vocabulary, and no more. *Predict what happens when a table of 8 rows is asked for row 8:*

# %%
with unfinished():
    try:
        TokenEmbedding(vocab_size=8, d_model=6)(torch.tensor([[5, 8]]))
    except IndexError as error:
        print("IndexError:", error)

# %% [markdown]
# On a graphics card the same mistake ends in a long message about a *device-side assert*, and nothing works afterwards until you restart. When you meet that,
# look for a token number that is too large: the rows of a table with $V$ rows are 0 to $V - 1$. `<unk>` is there so that no unknown word can cause it.

# %% [markdown]
# ## A lookup is a matrix product
#
# *Predict:* one-hot vectors looked so wasteful. Multiply one with the table, $[1, V] \times [V, d]$. What comes out?
#
# Each entry of the result is a sum over the vocabulary, and all terms but one are multiplied by 0:
#
# $$[0, 0, 1] \begin{bmatrix} 0 & 0 & 0 & 0 \\ 1 & 0.5 & -1 & 2 \\ 0.2 & -0.4 & 0.6 & 0 \end{bmatrix} = [0.2, -0.4, 0.6, 0]$$
#
# It is row 2. So **an embedding is a linear layer on one-hot vectors**, and the lookup is a short cut that skips the multiplications by 0. With the paper's
# sizes one token would cost $V \cdot d = 18{,}944{,}000$ products, all but 512 of them with 0. The short cut copies 512 numbers.
#
# Why should you care, if you never compute it that way? Because it tells what the block *is*: a matrix that is learned like every other. And in chapter 08 the
# same matrix, transposed, leads back from rows to words.
#
# * **1.5** `one_hot_lookup(ids, table)`: rows of the table by this product. `ids` may have any shape `[...]`, and the result has the shape `[..., d]`. Without the factor $\sqrt d$.
#
# `F.one_hot(ids, V)` makes the one-hot vectors, whole numbers of shape `[..., V]`. `a @ b` multiplies matrices, and wants both of the same dtype: `hot.to(table.dtype)` converts.


# %% todo="1.5"
def one_hot_lookup(ids, table):
    """Rows of the table by a matrix product: ids [...], table [V, d] -> [..., d]."""
    # TODO 1.5: make the one-hot vectors [..., V], then multiply them with the table
    ### BEGIN SOLUTION
    hot = F.one_hot(ids, table.size(0)).to(table.dtype)  # [..., V]
    return hot @ table  # [..., V] @ [V, d] -> [..., d]
    ### END SOLUTION


# %% test="1.5" points=4
check("1.5", one_hot_lookup)
### BEGIN HIDDEN TESTS
from grader import grade

grade("1.5", one_hot_lookup)
### END HIDDEN TESTS

# %% [markdown]
# The picture is drawn from your two functions. Choose another token and watch the frame move; change the width $d$ and watch the factor.

# %%
from transformer_lab.widgets.ch01 import lookup

lookup(TokenEmbedding, one_hot_lookup)

# %% [markdown]
# Break it on purpose: take the factor $\sqrt d$ out of your `TokenEmbedding`, run its cell and this picture again, and look at the last line on the right. Then put it back.

# %% [markdown]
# ## Why times $\sqrt d$?
#
# In chapter 02 a position code will be **added** to each row. Two things that are added should be of about the same size; otherwise the larger drowns the smaller.
#
# A position code is made of sines and cosines. Its values lie between −1 and 1, and their typical size (the root mean square, the root of the mean of the squares) is $1/\sqrt 2 = 0.71$,
# whatever $d$ is. And the rows of the table? That depends on how they are started:
#
# * The paper draws them with variance $1/d$, so their typical size is $1/\sqrt d$. For $d = 512$ that is 0.044: sixteen times less than the code.
#   The factor $\sqrt d = 22.6$ brings it to 1.
# * `nn.Embedding` draws them with variance 1. Their typical size is 1 already, and the factor makes it 22.6.
#
# Measure it. Your block gets 1000 words of width 512, started in one way or the other. We look at the sum of word and position, and ask two things: how much alike are
# the **same word in two places**, and **two words in the same place**? (1 means the same direction, 0 a right angle.)

# %%
from transformer_lab.parts import PositionalEncoding  # chapter 02 builds it; here we borrow the finished one

V, d = 1000, 512
code = PositionalEncoding(d).pe  # [5000, d]


def measure(start, factor, rows):
    """Describe the typical size of rows [V, d], and what is left of word and place in the sum."""
    same_word = F.cosine_similarity(rows[5] + code[3], rows[5] + code[40], dim=0)
    same_place = F.cosine_similarity(rows[5] + code[3], rows[6] + code[3], dim=0)
    return f"{start:14} {factor:6} {rows.square().mean().sqrt():13.3f} {same_word:20.3f} {same_place:20.3f}"


lines = ["start          factor  typical size  same word, 2 places  2 words, same place"]
with unfinished():
    for start, variance in (("variance 1", 1), ("variance 1/d", 1 / d)):
        torch.manual_seed(0)
        block = TokenEmbedding(V, d)
        with torch.no_grad():
            block.emb.weight.mul_(variance**0.5)  # nn.Embedding starts with variance 1
            lines.append(measure(start, "none", block.emb.weight))
            lines.append(measure(start, "yours", block(torch.arange(V)[None])[0]))
    print("\n".join(lines))

# %% [markdown]
# Read it line by line.
#
# * *Variance 1, no factor*: balanced. Word and place both show.
# * *Variance 1, factor √d*: the word is 22.6 / 0.71 = 32 times as large as the code. The same word in two places is all but the same row: **the place is lost**.
# * *Variance 1/d, no factor*: the code is 16 times as large as the word. Two different words in one place are all but the same row: **the word is lost**.
# * *Variance 1/d, factor √d*: balanced again. This is the paper.
#
# So the factor is right *together with* the start of variance $1/d$, and only then. Why not simply start with variance 1 and leave it out? Because the paper uses the same table
# once more, at the top of the machine, where each word's row is multiplied with the output to give its score. A row of 512 numbers of size 1 would give scores of a typical size of
# $\sqrt{512} = 22.6$, and a softmax of such scores is nearly a hard choice before anything is learned. One table, two jobs, two scales: the factor serves the one below.
#
# Our `Transformer` in chapter 08 starts its tables with variance $1/d$, as the paper does. Training moves the rows anyway, but a model
# should not have to begin by digging the places out.

# %% [markdown]
# ## Which words are alike?
#
# The rows of a table point in directions. Two words that are used alike should point the same way. The **cosine** of the angle between the rows $a$ and $b$ measures it:
#
# $$\cos(a, b) = \frac{a \cdot b}{\lVert a \rVert \, \lVert b \rVert}
# \qquad a \cdot b = \sum_j a_j b_j, \qquad \lVert a \rVert = \sqrt{\textstyle\sum_j a_j^2}$$
#
# $a \cdot b$ is the dot product, $\lVert a \rVert$ the length of the row, and $j$ counts the $d$ columns. The result is 1 for the same direction, 0 for a right angle and −1 for opposite ones, however long the rows are.
#
# *By hand:* $a = [3, 4]$ and $b = [4, 3]$ have the length 5 each, and $a \cdot b = 12 + 12 = 24$. So $\cos = 24 / 25 = 0.96$. With $c = [-4, 3]$ it is $0$: a right angle.
#
# * **1.6** `cosine_similarity(table)`: the cosine between any two rows of `table [V, d]`, as a matrix $[V, V]$. A row of zeros has no direction; give it the similarity 0 to everything,
#   itself included, and never NaN ("not a number", what 0 / 0 gives).
#
# The dot products of all pairs of rows at once are `table @ table.T`. `x.norm(dim=1, keepdim=True)` gives the lengths of the rows as a column, $[V, 1]$, and `x.clamp_min(tiny)` lifts whatever is smaller.


# %% todo="1.6"
def cosine_similarity(table):
    """The cosine between any two rows: table [V, d] -> [V, V]. A row of zeros has similarity 0."""
    # TODO 1.6: bring every row to length 1 (never divide by 0), then take all dot products
    ### BEGIN SOLUTION
    lengths = table.norm(dim=1, keepdim=True)  # [V, 1]
    unit = table / lengths.clamp_min(1e-12)  # [V, d]
    return unit @ unit.T  # [V, V]
    ### END SOLUTION


# %% test="1.6" points=4
check("1.6", cosine_similarity)
### BEGIN HIDDEN TESTS
from grader import grade

grade("1.6", cosine_similarity)
### END HIDDEN TESTS

# %% [markdown]
# The map shows your cosines between 18 words. The rows of the first table were not trained by a network, but counted: in 22 little sentences such as "cat eats fish" and "girl reads book", which words stand
# next to which? Words with like neighbours got like rows of 6 numbers.
#
# *Predict, before you look:* which words will be near "cat"? And what will the map of one-hot vectors look like?

# %%
from transformer_lab.widgets.ch01 import cosine_map

cosine_map(cosine_similarity)

# %% [markdown]
# Nobody told the table what an animal or a drink is. Those who eat, what is eaten, what one does with a book: the blocks on the diagonal come from the neighbours alone. A Transformer learns its table in the same
# spirit, by predicting words, and finds much finer distinctions.
#
# Now try the other tables:
#
# * **random start**: similarities of any size between any two words, and none of them means anything. With a small $d$ they are large by chance.
# * **one-hot**: white, but for the diagonal. Every pair of words at a right angle, whatever they mean. This is what "mute" meant.
# * The stripe of `<pad>` stays 0, itself included, because your function never divides by 0.
# * Make $d = 2$. Eighteen words on a flat sheet of paper: there is too little room, and words that have little to do with each other fall together. With $d = 512$ there is room for many kinds of likeness at once.

# %% [markdown]
# ## Review questions

# %%
question("1-a")

# %%
question("1-b")

# %%
question("1-c")

# %%
question("1-d")

# %%
question("1-e")

# %% [markdown]
# ## To think about
#
# **One row for each word: what about "bank"?**
#
# <details><summary>A discussion</summary>
#
# The table knows no context. "bank" has one row, whether money or a river is meant, and that row can only be a mixture. It is the work of the layers above: attention brings in the neighbours, and after a few
# layers the row of "bank" in "the bank of the river" is another one than in "the bank lent money". The embedding gives a word its possible meanings, and the layers choose.
#
# </details>
#
# **A name that training never met becomes `<unk>`. How would you translate it?**
#
# <details><summary>A discussion</summary>
#
# You could not: all unknown words look the same. Real systems therefore cut words into frequent pieces ("sub" + "word"), down to single letters or bytes when nothing else fits. The pieces are found by
# counting, for instance by joining the most frequent pair of neighbours again and again (byte-pair encoding). A vocabulary of 30,000 to 200,000 pieces then covers any text, and `<unk>` is hardly needed. The machine does not notice:
# for it, a token is a number.
#
# </details>
#
# **The table is one of the largest parts of the model. Does it have to be?**
#
# <details><summary>A discussion</summary>
#
# With $V = 37{,}000$ and $d = 512$ the table has 18.9 million numbers; six encoder layers together have about as many. The paper shares one table between source, target and output layer, where three would stand. Others
# factor it into two thin matrices, $[V, k]$ and $[k, d]$ with a small $k$, or give rare words fewer numbers. A smaller vocabulary helps as well, but cuts words into more pieces, and then sentences get longer and attention dearer.
#
# </details>
#
# ## What you built
#
# `TokenEmbedding` turns token numbers $[B, n]$ into rows $[B, n, d]$, `build_vocab` and `encode` get the numbers from sentences, and you know that a lookup is a matrix product and what $\sqrt d$ is for.
#
# But the same word gives the same row, wherever it stands: for your block "dog bites man" and "man bites dog" hold the same three rows. Chapter **02** adds the missing part: positions.
