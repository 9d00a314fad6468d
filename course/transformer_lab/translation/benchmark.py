"""How fast the finished parts train beside the same model built around `torch.nn.Transformer`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..parts import PAD, OutputLayer, PositionalEncoding, TokenEmbedding, causal_mask, initialise, tie_weights
from .data import Corpus, make_corpus
from .decoding import exact_match
from .training import MAX_LEN, Settings, Trainer, train_step


class TorchTransformer(nn.Module):
    """Embeddings, positions and output layer of this course, and `torch.nn.Transformer` in the middle."""

    def __init__(self, src_vocab: int, tgt_vocab: int, settings: Settings):
        super().__init__()
        s = settings
        self.src_emb, self.tgt_emb = (TokenEmbedding(size, s.d_model) for size in (src_vocab, tgt_vocab))
        self.pos = PositionalEncoding(s.d_model, MAX_LEN)
        core = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                s.d_model, s.h, s.d_ff, s.dropout, batch_first=True, norm_first=s.norm == "pre"
            ),
            s.N,
            nn.LayerNorm(s.d_model) if s.norm == "pre" else None,
            enable_nested_tensor=False,
        )
        self.core = nn.Transformer(
            s.d_model,
            s.h,
            s.N,
            s.N,
            s.d_ff,
            s.dropout,
            batch_first=True,
            norm_first=s.norm == "pre",
            custom_encoder=core,
        )
        if s.norm == "post":
            self.core.decoder.norm = None  # the paper has no norm after the last Post-LN layer
        self.output = OutputLayer(s.d_model, tgt_vocab)
        tie_weights(self.tgt_emb, self.output)
        initialise(self, s.dropout)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        hidden = self.core(
            self.pos(self.src_emb(src)),
            self.pos(self.tgt_emb(tgt_in)),
            tgt_mask=~causal_mask(tgt_in.size(1))[0, 0].to(src.device),
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=src == PAD,
            tgt_is_causal=True,
        )
        return self.output(hidden)


@dataclass(frozen=True)
class Throughput:
    """Target tokens a second of training, on the same batches in the same minute."""

    ours: float
    torch: float

    def __str__(self) -> str:
        return f"{self.ours:,.0f} tokens/s against {self.torch:,.0f} ({self.ours / self.torch:.2f} times)"


def compare_throughput(
    corpus: Corpus,
    settings: Settings | None = None,
    steps: int = 50,
    clock: Callable[[], float] = time.perf_counter,
) -> Throughput:
    """Train both models in turns, a step each on the same batch, so that a busy machine slows both alike."""
    trainer = Trainer(corpus, settings or Settings())
    vocabs = len(corpus.src_vocab), len(corpus.tgt_vocab)
    rival = TorchTransformer(*vocabs, trainer.settings).to(trainer.device)
    optimizer = torch.optim.Adam(rival.parameters(), fused=True)
    contestants = [(trainer.model, trainer.optimizer, 0.0), (rival, optimizer, 0.0)]
    tokens, warm = 0, 5
    for i, (src, tgt) in enumerate(trainer.batches_from(0)):
        if i == warm + steps:
            break
        for who, (model, update, spent) in enumerate(contestants):
            started = clock()
            train_step(model, update, src, tgt)  # ends in .item(), which waits for a GPU too
            if i >= warm:
                contestants[who] = model, update, spent + clock() - started
        if i >= warm:
            tokens += int((tgt != PAD).sum())
    return Throughput(*(tokens / spent for _, _, spent in contestants))


def measure(seed: int, corpus: Corpus | None = None, settings: Settings | None = None) -> str:
    """Train one model from nothing and say in one line how long it took and how often it is right."""
    corpus = corpus or make_corpus(seed)
    trainer = Trainer(corpus, settings or Settings(seed=seed))
    started = time.process_time()
    trainer.train(progress=False)
    busy = time.process_time() - started
    heldout, unseen = (exact_match(trainer.model, corpus, s) for s in (corpus.heldout, corpus.unseen))
    return (
        f"seed {seed}: {trainer.seconds:.0f} s on {torch.get_num_threads()} threads "
        f"({busy:.0f} s of processor time); held out {heldout}; unseen pairs {unseen}"
    )


if __name__ == "__main__":  # python -m transformer_lab.translation.benchmark 0 1 2
    print(f"throughput: {compare_throughput(make_corpus(0, 6_000, 10, 10), steps=150)}", flush=True)
    for chosen in sys.argv[1:] or ["0"]:
        print(measure(int(chosen)), flush=True)
