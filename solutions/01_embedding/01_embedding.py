# %% [markdown]
# # 01 · Embedding

# %% setup=true
import math

import torch
from torch import nn
from torch.nn import functional as F

from transformer_lab import check, hint, question, unfinished

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
from transformer_lab import grade
grade("1.1", TokenEmbedding)
### END HIDDEN TESTS

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
from transformer_lab import grade
grade("1.3", build_vocab)
### END HIDDEN TESTS

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
from transformer_lab import grade
grade("1.4", encode)
### END HIDDEN TESTS

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
from transformer_lab import grade
grade("1.5", one_hot_lookup)
### END HIDDEN TESTS

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
from transformer_lab import grade
grade("1.6", cosine_similarity)
### END HIDDEN TESTS
