"""Chapter 09: the schedule, the falling loss, who looks at whom, greedy beside beam, a line to type in."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import torch
from IPython.display import display
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from transformer_lab.language import _
from transformer_lab.notebook import in_notebook
from transformer_lab.translation import Corpus, Sentence, Settings, Trainer, Translator, greedy_batch, join
from transformer_lab.translation.data import BOS, EOS
from transformer_lab.translation.decoding import LONGEST
from transformer_lab.widgets.base import Picture, choice, float_slider, int_slider
from transformer_lab.widgets.box import Box
from transformer_lab.widgets.fonts import label_font

BLUE, ORANGE, GREY = "#31688e", "#e08214", "0.7"


def name_words(axis: Axis, words: Sequence[str], **style: Any) -> None:
    """Write words along an axis; without a font for Chinese they are numbered."""
    shown, font = _shown(words)
    axis.set_ticks(range(len(words)), shown, fontproperties=font, **style)
    axis.set_tick_params(length=0)


def _shown(words: Sequence[str]) -> tuple[list[str], Any]:
    try:
        return list(words), label_font("".join(words))
    except LookupError:  # the sentence below the picture still names them
        return [f"word {i + 1}" for i in range(len(words))], None


# ---- the schedule -----------------------------------------------------------------------------------

STEPS = 4_000  # drawn


@dataclass(frozen=True)
class WarmupData:
    """steps [K]; rates [K] by the learner's function, and `bare` [K], the same fall without a warmup."""

    steps: np.ndarray
    rates: np.ndarray
    bare: np.ndarray
    d_model: int
    warmup: int


def warmup_data(warmup_lr: Callable[[int, int, int], float], d_model: int, warmup: int) -> WarmupData:
    """Return the learning rates of steps 1 to STEPS, every 20th (and the peak's)."""
    steps = np.unique([1, *range(20, STEPS + 1, 20), warmup])
    rates = np.array([float(warmup_lr(int(step), d_model, warmup)) for step in steps])
    return WarmupData(steps, rates, (d_model * steps) ** -0.5, d_model, warmup)


class Warmup(Picture):
    """The learning rate over the steps; dashed, what it would be without the warmup."""

    size = (7.5, 3.2)

    def __init__(self, warmup_lr: Callable[[int, int, int], float]):
        self.warmup_lr = warmup_lr
        super().__init__()

    def controls(self) -> dict[str, Any]:
        return {
            "d_model": choice("d_model", [32, 64, 96, 256, 512], 96),
            "warmup": choice(_("warmup (steps)"), [50, 100, 200, 400, 1000, 2000], 400),
        }

    def compute(self, d_model: int, warmup: int) -> WarmupData:
        return warmup_data(self.warmup_lr, d_model, warmup)

    def start(self, figure: Figure, data: WarmupData) -> None:
        axes = figure.subplots()
        (self.bare,) = axes.plot([], [], "--", color=GREY, label=_("without warmup"))
        (self.line,) = axes.plot([], [], color=BLUE, linewidth=2, label=_("your warmup_lr"))
        (self.peak,) = axes.plot([], [], "o", color=ORANGE, label=_("step = warmup"))
        axes.set(xlabel=_("step"), ylabel=_("learning rate"), xlim=(0, STEPS), ylim=(0, 0.01))
        axes.legend(frameon=False)

    def draw(self, data: WarmupData) -> None:
        self.bare.set_data(data.steps, data.bare)
        self.line.set_data(data.steps, data.rates)
        at = int(np.searchsorted(data.steps, data.warmup))
        self.peak.set_data([data.warmup], [data.rates[at]])

    def describe(self, data: WarmupData) -> str:
        at = int(data.rates.argmax())
        return _(
            "d_model = {d_model}, warmup = {warmup}: the rate starts at {rates:.2g}, its peak "
            "is {rates_2:.2g} at step {steps}; without warmup it would start at {bare:.2g}."
        ).format(
            d_model=data.d_model,
            warmup=data.warmup,
            rates=data.rates[0],
            rates_2=data.rates[at],
            steps=data.steps[at],
            bare=data.bare[0],
        )


def warmup_curve(warmup_lr: Callable[[int, int, int], float]) -> Warmup:
    """Draw your learning-rate schedule beside the one that has no warmup."""
    return Warmup(warmup_lr)


class _Bare(Trainer):
    """A trainer whose rate falls from the first step on."""

    def learning_rate(self, step: int) -> float:
        return (self.settings.d_model * step) ** -0.5


class _Warm(Trainer):
    """A trainer with the learner's schedule."""

    schedule: Callable[[int, int, int], float]

    def learning_rate(self, step: int) -> float:
        return float(self.schedule(step, self.settings.d_model, self.settings.warmup))


@dataclass(frozen=True)
class RaceData:
    """losses [steps] of the same Post-LN model with and without warmup."""

    warm: np.ndarray
    bare: np.ndarray


RACE = Settings(d_model=64, h=4, d_ff=128, N=2, norm="post", epochs=1, batch_size=32, warmup=400, dropout=0.0)


def race_data(
    corpus: Corpus, train_step: Callable, warmup_lr: Callable[[int, int, int], float], steps: int
) -> RaceData:
    """Train a Post-LN model twice from the same start on the same batches, with and without warmup."""
    few = replace(corpus, train=corpus.train[: steps * RACE.batch_size])
    losses = []
    with torch.random.fork_rng(devices=[]):
        for kind in (_Warm, _Bare):
            trainer = kind(few, RACE, step=train_step)
            trainer.schedule = warmup_lr
            losses.append(np.array(trainer.train(steps, progress=False).losses))
    return RaceData(*losses)


class Race(Picture):
    """Two loss curves: with the learner's warmup, and without."""

    size = (7.5, 3.0)

    def __init__(self, corpus: Corpus, train_step: Callable, warmup_lr: Callable, steps: int):
        self.ask = corpus, train_step, warmup_lr, steps
        super().__init__()

    def compute(self) -> RaceData:
        return race_data(*self.ask)

    def start(self, figure: Figure, data: RaceData) -> None:
        axes = figure.subplots()
        steps = np.arange(1, len(data.warm) + 1)
        axes.plot(steps, data.bare, color=ORANGE, label=_("without warmup"))
        axes.plot(steps, data.warm, color=BLUE, label=_("with warmup"))
        axes.set(xlabel=_("step"), ylabel=_("loss (nats a token)"), ylim=(0, 8), xlim=(0, len(steps) + 1))
        axes.legend(frameon=False)

    def draw(self, data: RaceData) -> None:
        """Nothing moves here: there are no controls."""

    def describe(self, data: RaceData) -> str:
        last = max(1, min(10, len(data.warm)))
        return _(
            "After {warm_count} steps the loss is {warm:.2f} with warmup and {bare:.2f} "
            "without (means of the last {last} steps)."
        ).format(
            warm_count=len(data.warm), warm=data.warm[-last:].mean(), bare=data.bare[-last:].mean(), last=last
        )


def warmup_race(corpus: Corpus, train_step: Callable, warmup_lr: Callable, steps: int = 150) -> Race:
    """Train a small Post-LN model with your warmup and without it, and draw both losses."""
    return Race(corpus, train_step, warmup_lr, steps)


# ---- the loss while it falls ------------------------------------------------------------------------

SMOOTH = 25  # steps
EVERY = 1.0  # seconds between two pictures: one costs 50 ms


@dataclass(frozen=True)
class LossData:
    """losses [done] in nats a token, their running mean, and how many steps there will be."""

    losses: np.ndarray
    smooth: np.ndarray
    total: int


def loss_data(losses: Sequence[float], total: int) -> LossData:
    """Return the losses with a running mean over the latest SMOOTH of them."""
    values = np.array(losses, dtype=float)
    sums = np.concatenate([[0.0], values.cumsum()])
    at = np.arange(1, len(values) + 1)
    start = np.maximum(0, at - SMOOTH)
    return LossData(values, (sums[at] - sums[start]) / (at - start), total)


class LossCurve(Picture):
    """The loss of every step, and its running mean, up to the last step that will be made."""

    size = (7.5, 3.0)

    def __init__(self, losses: Sequence[float], total: int):
        self.losses, self.total = losses, total
        super().__init__()

    def compute(self) -> LossData:
        return loss_data(self.losses, self.total)

    def start(self, figure: Figure, data: LossData) -> None:
        axes = figure.subplots()
        (self.dots,) = axes.plot([], [], ".", color=GREY, markersize=2, label=_("each step"))
        label = _("mean of {SMOOTH} steps").format(SMOOTH=SMOOTH)
        (self.line,) = axes.plot([], [], color=BLUE, linewidth=2, label=label)
        axes.set(xlabel=_("step"), ylabel=_("loss (nats a token)"), yscale="log", xlim=(0, data.total + 1))
        axes.set_ylim(3e-4, 10)
        axes.legend(frameon=False)

    def draw(self, data: LossData) -> None:
        steps = np.arange(1, len(data.losses) + 1)
        self.dots.set_data(steps, data.losses)
        self.line.set_data(steps, data.smooth)

    def describe(self, data: LossData) -> str:
        done = len(data.losses)
        if not done:
            return _("Step 0 of {total:,}: no step has been made yet.").format(total=data.total)
        return _(
            "Step {done:,} of {total:,}: the loss fell from {losses:.2f} to {smooth:.3f} nats "
            "a token (mean of the last {SMOOTH} steps)."
        ).format(
            done=done,
            total=data.total,
            losses=data.losses[0],
            smooth=data.smooth[-1],
            SMOOTH=min(SMOOTH, done),
        )


class Watch:
    """Shows a progress bar and the loss curve during training, and a picture that stays at the end."""

    def __init__(self, trainer: Trainer, clock: Callable[[], float] = time.monotonic):
        self.curve = LossCurve(trainer.losses, trainer.total_steps)
        self.clock, self.last = clock, clock()
        self.begun, self.first = self.last, len(trainer.losses)
        self.shown = display({"text/plain": self.curve.summary()}, raw=True, display_id=True)

    def __call__(self, trainer: Trainer) -> None:
        """Draw anew when a second has gone by; `Trainer.train` calls this."""
        if self.clock() - self.last >= EVERY:
            self.last = self.clock()
            self._show(self.page(trainer))

    def page(self, trainer: Trainer) -> dict[str, str]:
        """Return what is shown in the middle of training: a bar, a sentence and the picture."""
        self.curve.losses = trainer.losses
        self.curve.set()
        done, total, words = len(trainer.losses), trainer.total_steps, self.curve.summary()
        spent = max(1e-9, self.clock() - self.begun)
        left = spent / max(1, done - self.first) * (total - done)
        picture = base64.b64encode(self.curve.png()).decode()
        bar = f'<progress value="{done}" max="{total}" aria-label="training" style="width:20em"></progress>'
        text = _("{words} About {left:.0f} s left.").format(words=escape(words), left=left)
        html = f'<p>{bar} {text}</p><img alt="{escape(words)}" src="data:image/png;base64,{picture}">'
        return {"text/html": html, "text/plain": words}

    def finish(self, trainer: Trainer) -> None:
        """Leave the finished picture, as a picture proper, so that it stays in the saved notebook."""
        self.curve.losses = trainer.losses
        self.curve.set()
        words = self.curve.summary()
        self._show({"image/png": self.curve.png(), "text/plain": words}, {"image/png": {"alt": words}})

    def _show(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        if self.shown is not None:  # None outside a notebook
            self.shown.update(data, raw=True, metadata=metadata or {})


def train_and_watch(trainer: Trainer, checkpoint: Path | str | None = None, save_every: int = 200) -> None:
    """Train to the end under a live loss curve; an interruption (the stop button) is said, not an error.

    With `checkpoint` the run is saved there every `save_every` steps and at the end.
    """
    watch = Watch(trainer) if in_notebook() else None
    try:
        trainer.train(
            on_progress=watch, every=10, checkpoint=checkpoint, save_every=save_every, progress=watch is None
        )
    except KeyboardInterrupt:
        print(
            _("Stopped after step {losses_count:,}. Run this cell again to go on.").format(
                losses_count=len(trainer.losses)
            )
        )
    if watch is not None:
        watch.finish(trainer)


# ---- who looks at whom ------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlignmentData:
    """weights [m, n] of one head: a row for each target word (and </s>), a column for each source word."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray
    word: int
    head: str

    @property
    def strongest(self) -> np.ndarray:
        """The source position that each target word, </s> left out, looks at most: [m - 1]."""
        return self.weights[:-1].argmax(axis=1)

    @property
    def crossings(self) -> int:
        """How many pairs of target words look at two source words that stand the other way round."""
        at = self.strongest
        return sum(int(at[j] > at[k]) for j in range(len(at)) for k in range(j + 1, len(at)))


def best_head(translator: Translator, sentences: Sequence[Sentence]) -> tuple[int, int]:
    """Return (layer, head) whose strongest weights agree best with the grammar's own alignment."""
    shares = translator.alignment_accuracy(sentences)  # [layers, h]; a number when nothing came out right
    if shares.dim() != 2:
        return 0, 0
    layer, head = divmod(int(shares.argmax()), shares.size(1))
    return layer, head


def alignment_data(
    translator: Translator, words: Sequence[str], layer: int, head: int | None, word: int
) -> AlignmentData:
    """Return the cross-attention while the model writes its own translation; head None: the heads' mean."""
    found = translator.align(words)
    weights = found.weights[layer].detach().float()  # [h, m, n]
    chosen = weights.mean(0) if head is None else weights[head]
    name = f"layer {layer + 1}, " + (_("mean of the heads") if head is None else f"head {head + 1}")
    at = min(word, len(found.target)) - 1
    return AlignmentData(tuple(found.source), tuple(found.target), chosen.numpy(), at, name)


class AlignmentMap(Picture):
    """Left: weights, a row for each target word. Right: a line from each target word to what it looks at."""

    size = (10.0, 4.6)

    def __init__(self, translator: Translator, sentences: Sequence[Sentence]):
        self.translator, self.sentences = translator, list(sentences)
        self.best = best_head(translator, self.sentences)
        super().__init__()

    def controls(self) -> dict[str, Any]:
        source = self.translator.corpus.source
        layers = self.translator.model.decoder.layers
        heads = [
            (f"layer {layer + 1}, head {head + 1}", (layer, head))
            for layer in range(len(layers))
            for head in range(self._heads())
        ]
        means = [(f"layer {layer + 1}, mean", (layer, None)) for layer in range(len(layers))]
        sentences = [(join(getattr(s, source)), i) for i, s in enumerate(self.sentences)]
        return {
            "sentence": choice("sentence", sentences),
            "word": int_slider(_("target word"), 2, 1, 12, help=_("which target word to follow")),
            "head": choice("head", heads + means, self.best),
        }

    def _heads(self) -> int:
        found = self.translator.align(getattr(self.sentences[0], self.translator.corpus.source))
        return found.weights.size(1)

    def compute(self, sentence: int, word: int, head: tuple[int, int | None]) -> AlignmentData:
        words = getattr(self.sentences[sentence], self.translator.corpus.source)
        return alignment_data(self.translator, words, head[0], head[1], word)

    def start(self, figure: Figure, data: AlignmentData) -> None:
        self.map, self.lines = figure.subplots(1, 2, width_ratios=[1.1, 1])

    def draw(self, data: AlignmentData) -> None:
        # Sentences differ in length, so both panels are drawn anew; the map stays below 20 × 20 cells.
        self._draw_map(data)
        self._draw_lines(data)

    def _draw_map(self, data: AlignmentData) -> None:
        axes = self.map
        axes.clear()
        axes.imshow(data.weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        axes.spines[:].set_visible(False)
        name_words(axes.xaxis, data.source, rotation=45, ha="left")
        name_words(axes.yaxis, data.target)
        axes.xaxis.tick_top()
        axes.axhspan(data.word - 0.5, data.word + 0.5, fill=False, edgecolor=ORANGE, linewidth=2.5)
        if data.weights.size <= 200:
            for (i, j), weight in np.ndenumerate(data.weights):
                if weight >= 0.05:
                    colour = "white" if weight < 0.6 else "black"
                    axes.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=7, color=colour)

    def _draw_lines(self, data: AlignmentData) -> None:
        axes = self.lines
        axes.clear()
        axes.set_axis_off()
        m, n = data.weights.shape
        x_source, x_target = np.linspace(0, 1, n), np.linspace(0, 1, m)
        for i in range(m):
            for j in range(n):
                weight = float(data.weights[i, j])
                if weight < 0.05:
                    continue
                chosen = i == data.word
                axes.plot(
                    [x_target[i], x_source[j]],
                    [0.08, 0.92],
                    color=ORANGE if chosen else BLUE,
                    linewidth=4 * weight,
                    alpha=1.0 if chosen else 0.45,
                    zorder=3 if chosen else 2,
                )
        source, source_font = _shown(data.source)
        target, target_font = _shown(data.target)
        for x, text in zip(x_source, source, strict=True):
            axes.text(x, 0.95, text, rotation=45, ha="left", va="bottom", fontproperties=source_font)
        for i, (x, text) in enumerate(zip(x_target, target, strict=True)):
            colour = ORANGE if i == data.word else "black"
            axes.text(x, 0.05, text, ha="center", va="top", fontproperties=target_font, color=colour)
        axes.set(xlim=(-0.08, 1.15), ylim=(-0.05, 1.2))

    def describe(self, data: AlignmentData) -> str:
        at = int(data.weights[data.word].argmax())
        pairs = (
            _("1 pair of target words looks")
            if data.crossings == 1
            else _("{crossings} pairs look").format(crossings=data.crossings)
        )
        return _(
            "{head}: while it writes “{target}” the model looks most at “{source}”, "
            "{weights:.2f}. {pairs} at source words in the other order: there the lines cross."
        ).format(
            head=data.head,
            target=data.target[data.word],
            source=data.source[at],
            weights=data.weights[data.word, at],
            pairs=pairs,
        )


def alignment_map(translator: Translator, sentences: Sequence[Sentence]) -> AlignmentMap:
    """Show which source word the model looks at while it writes each word of its translation."""
    return AlignmentMap(translator, sentences)


def crossing(sentences: Sequence[Sentence], count: int = 6) -> list[Sentence]:
    """Return the sentences whose two word orders differ most, by the grammar's own alignment."""

    def crossings(sentence: Sentence) -> int:
        links = sorted(sentence.alignment)
        return sum(a[1] > b[1] for i, a in enumerate(links) for b in links[i + 1 :])

    return sorted(sentences, key=crossings, reverse=True)[:count]


# ---- greedy beside beam -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchData:
    """Two translations of one sentence: words, and the log-probability of each (</s> last)."""

    source: tuple[str, ...]
    right: tuple[str, ...]
    words: dict[str, tuple[str, ...]]
    logs: dict[str, np.ndarray]

    def total(self, name: str) -> float:
        return float(self.logs[name].sum())


def search_data(
    translator: Translator,
    sentence: Sentence,
    greedy: Callable,
    beam_search: Callable,
    width: int,
    penalty: float,
) -> SearchData:
    """Translate one sentence with the learner's greedy and with their beam search."""
    source = getattr(sentence, translator.corpus.source)
    after = translator.next_log_probs(source)
    found = {
        "greedy": greedy(after, BOS, EOS, LONGEST),
        "beam": beam_search(after, BOS, EOS, width, LONGEST, penalty),
    }
    words = {name: tuple(translator.words[i] for i in ids) for name, ids in found.items()}
    logs = {
        name: np.array([float(after([BOS, *ids[:i]])[token]) for i, token in enumerate(ids)])
        for name, ids in found.items()
    }
    return SearchData(source, getattr(sentence, translator.corpus.target), words, logs)


@torch.no_grad()
def least_sure(translator: Translator, sentences: Sequence[Sentence], count: int = 6) -> list[Sentence]:
    """Return the sentences whose greedy translation the model finds least likely."""
    src, _ = translator.corpus.encode(sentences)
    src = src.to(translator.device)
    ids = greedy_batch(translator.model, src)
    longest = max(map(len, ids)) + 1
    rows = [[*row, EOS] + [0] * (longest - len(row) - 1) for row in ids]
    tgt = torch.tensor(rows, device=src.device)
    tgt_in = torch.cat([torch.full_like(tgt[:, :1], BOS), tgt[:, :-1]], dim=1)
    logs = translator.model(src, tgt_in).log_softmax(-1).gather(-1, tgt[..., None])[..., 0]
    totals = (logs * (tgt != 0)).sum(1).tolist()
    order = sorted(range(len(totals)), key=totals.__getitem__)
    return [sentences[i] for i in order[:count]]


class SearchBars(Picture):
    """The probability of each word that greedy and beam search wrote."""

    size = (9.0, 3.8)

    def __init__(self, translator: Translator, sentences: Sequence[Sentence], greedy, beam_search):
        self.translator, self.sentences = translator, list(sentences)
        self.greedy, self.beam_search = greedy, beam_search
        super().__init__()

    def controls(self) -> dict[str, Any]:
        source = self.translator.corpus.source
        sentences = [(join(getattr(s, source)), i) for i, s in enumerate(self.sentences)]
        return {
            "sentence": choice("sentence", sentences),
            "width": int_slider(_("beam width"), 4, 1, 8),
            "penalty": float_slider(_("length penalty"), 0.0, 0.0, 1.5, 0.1),
        }

    def compute(self, sentence: int, width: int, penalty: float) -> SearchData:
        return search_data(
            self.translator, self.sentences[sentence], self.greedy, self.beam_search, width, penalty
        )

    def start(self, figure: Figure, data: SearchData) -> None:
        self.axes = dict(zip(("greedy", "beam"), figure.subplots(2, 1), strict=True))

    def draw(self, data: SearchData) -> None:
        for (name, axes), colour in zip(self.axes.items(), (ORANGE, BLUE), strict=True):
            axes.clear()
            chances = np.exp(data.logs[name])
            axes.bar(range(len(chances)), chances, color=colour, width=0.6)
            for i, chance in enumerate(chances):
                axes.text(i, chance + 0.03, f"{chance:.2f}", ha="center", fontsize=8)
            name_words(axes.xaxis, data.words[name])
            axes.set(ylim=(0, 1.25), yticks=[0, 1], xlim=(-0.6, max(map(len, data.words.values())) - 0.4))
            axes.set_title(f"{name}: log-probability {data.total(name):.3f}", fontsize=10, loc="left")

    def describe(self, data: SearchData) -> str:
        said = {name: words[:-1] if words[-1:] == ("</s>",) else words for name, words in data.words.items()}
        right = {name: "right" if words == data.right else "wrong" for name, words in said.items()}
        first = _("“{join}” Greedy writes {join_2} ({right}, log-probability ").format(
            join=join(data.source), join_2=join(said["greedy"]), right=right["greedy"]
        )
        first += f"{data.total('greedy'):.3f}). "
        if said["beam"] == said["greedy"]:
            return first + _("The beam finds the same sentence.")
        return first + (
            _("The beam finds {join} ({right}, {data:.3f}). Right is {join_2}").format(
                join=join(said["beam"]), right=right["beam"], data=data.total("beam"), join_2=join(data.right)
            )
        )


def greedy_and_beam(
    translator: Translator, sentences: Sequence[Sentence], greedy: Callable, beam_search: Callable
) -> SearchBars:
    """Compare your greedy with your beam search on sentences that the model finds hard."""
    return SearchBars(translator, sentences, greedy, beam_search)


# ---- a box to type in -------------------------------------------------------------------------------


class Typed:
    """A line to type a sentence into; its translation, or what is wrong with it, appears below."""

    def __init__(self, reply: Callable[[str], str], first: str):
        self.reply = reply
        self.line = ipywidgets.Text(
            first, description="English", continuous_update=False, layout=ipywidgets.Layout(width="90%")
        )
        self.answer = ipywidgets.HTML()
        self.line.observe(self._translate, names="value")
        self._translate()

    def _translate(self, _change: Any = None) -> None:
        answer = escape(self.reply(self.line.value))
        self.answer.value = f'<p role="status" aria-live="polite" style="font-size:120%">{answer}</p>'

    def _ipython_display_(self) -> None:
        display(Box([self.line, self.answer]))

    def __repr__(self) -> str:
        return "Typed()"


def type_a_sentence(translator: Translator, first: str = "She is reading a book.") -> Typed:
    """Type English sentences and read their translations (press Enter)."""
    return Typed(translator.reply, first)
