"""Right answers to 8.4 that are written another way."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.parts import (
    Decoder,
    Encoder,
    OutputLayer,
    PositionalEncoding,
    TokenEmbedding,
    initialise,
    padding_mask,
    target_mask,
)


class TiedTheOtherWay(nn.Module):
    """The embedding takes the output layer's matrix; one method places both kinds of tokens."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        super().__init__()
        self.src_emb, self.tgt_emb = TokenEmbedding(src_vocab, d_model), TokenEmbedding(tgt_vocab, d_model)
        self.pos, self.drop = PositionalEncoding(d_model, max_len), nn.Dropout(dropout)
        self.encoder = Encoder(d_model, h, d_ff, N, norm)
        self.decoder = Decoder(d_model, h, d_ff, N, norm)
        self.output = OutputLayer(d_model, tgt_vocab)
        self.tgt_emb.emb.weight = self.output.proj.weight
        initialise(self, dropout)

    def place(self, embedding, ids):
        return self.drop(self.pos(embedding(ids)))

    def encode(self, src):
        return self.encoder(self.place(self.src_emb, src), padding_mask(src))

    def decode(self, tgt_in, memory, src):
        x = self.place(self.tgt_emb, tgt_in)
        return self.output(self.decoder(x, memory, target_mask(tgt_in), padding_mask(src)))

    def forward(self, src, tgt_in):
        memory = self.encode(src)
        return self.decode(tgt_in, memory, src)


class OutputFirst(TiedTheOtherWay):
    """Parts made in another order, so that the shared tensor has its other name first."""

    def __init__(
        self, src_vocab, tgt_vocab, d_model=512, h=8, d_ff=2048, N=6, max_len=512, dropout=0.1, norm="post"
    ):
        nn.Module.__init__(self)
        self.output = OutputLayer(d_model, tgt_vocab)
        self.decoder = Decoder(d_model, h, d_ff, N, norm=norm)
        self.encoder = Encoder(d_model, h, d_ff, N, norm=norm)
        self.tgt_emb, self.src_emb = TokenEmbedding(tgt_vocab, d_model), TokenEmbedding(src_vocab, d_model)
        self.tgt_emb.emb.weight = self.output.proj.weight
        self.pos, self.drop = PositionalEncoding(d_model, max_len), nn.Dropout(dropout)
        initialise(self, dropout)


class OwnMasks(TiedTheOtherWay):
    """Masks by comparison, passed by name; layers called one by one; the output layer written as a product."""

    def encode(self, src):
        real = src.ne(0)
        x = self.place(self.src_emb, src)
        for layer in self.encoder.layers:
            x = layer(x, mask=real[:, None, None])
        return x if self.encoder.norm is None else self.encoder.norm(x)

    def decode(self, tgt_in, memory, src):
        place = torch.arange(tgt_in.size(1), device=tgt_in.device)
        allowed = (place[:, None] >= place) & (tgt_in != 0)[:, None, None, :]
        x = self.decoder(
            self.place(self.tgt_emb, tgt_in),
            memory,
            tgt_mask=allowed,
            memory_mask=(src != 0)[:, None, None],
        )
        return F.linear(x, self.tgt_emb.emb.weight)
