# %% [markdown]
# # 09 · Translation
#
# Eight chapters built parts. This one puts a real task before them: **English to Chinese**, learned from sentences alone, on your own
# processor, in a minute and a half.
#
# You will write the learning-rate schedule, one training step, a test of the whole machine on eight sentences, and the loop that writes a
# translation. Then you train, read what comes out, and look inside. Plan for about 90 minutes.
#
# The model is made of **your own parts** from chapters 01 to 08, wherever they pass their checks. For the others a finished part with the
# same interface stands in, so nothing that is unfinished stops you here. The cell says which are whose.

# %% setup=true
import torch

from transformer_lab import check, hint, question, unfinished
from transformer_lab.translation.capstone import choose_parts
from transformer_lab.parts import BOS, EOS, PAD  # <s> = 1, </s> = 2, <pad> = 0

PARTS = choose_parts()
shift_right, sequence_loss = PARTS["shift_right"], PARTS["sequence_loss"]
greedy, beam_search = PARTS["greedy"], PARTS["beam_search"]

# %% [markdown]
# ## Where we are

# %%
from transformer_lab.widgets.architecture import architecture

architecture("translation")

# %% [markdown]
# ## The sentences
#
# A grammar written for this course draws pairs of sentences from over 500 English and 300 Chinese words. The **budget** says how many.
# In your notebook it is *full*. (The course's own tests run this notebook with a small budget: shorter sentences, a smaller model. What is
# printed always says which one it was.)

# %%
from transformer_lab.translation.capstone import budget, corpus_for
from transformer_lab.translation import join
from transformer_lab.widgets.ch09 import crossing

BUDGET = budget()
corpus = corpus_for(BUDGET)
print(BUDGET)
print(
    f"training {len(corpus.train):,}, held out {len(corpus.heldout):,}, unseen pairs {len(corpus.unseen):,} sentences"
)
print(
    f"vocabularies: {len(corpus.src_vocab)} English, {len(corpus.tgt_vocab)} Chinese words, special tokens included"
)
for sentence in corpus.train[:8]:
    print(f"  {join(sentence.en):45} {join(sentence.zh)}")

# %% [markdown]
# Why this is not a matter of replacing word by word:
#
# * **Order.** Time and place come last in English and *before the verb* in Chinese: "She bought a book in the shop yesterday" becomes
#   她昨天在商店买了一本书, word for word *she yesterday in shop buy 了 one 本 book*.
# * **Words that one side lacks.** Chinese has no *the*, no plural, no *do*. English has no measure words: *a book* is 一**本**书, *a horse* is
#   一**匹**马. The right one depends on a noun that comes later.
# * **Words far away.** *Not* is 没 in the past and 不 otherwise, so the verb's tense decides about another word. A question without a question word gets 吗 at its very end.
#
# And the two held-out sets ask two questions:
#
# | set | what is new in it |
# |---|---|
# | **held out** | the *sentences*. Every word was seen, this combination never |
# | **unseen pairs** | a *verb and its object* that never stood in one training sentence. Who memorises pairs fails here |

# %% [markdown]
# ## Predict first
#
# A model that knows nothing gives all $V$ Chinese words about the same probability $1/V$. The loss at a word is $-\ln p$ (chapter 08), in *nats*.
#
# *What loss does an untrained model start with, roughly: 0.5, 6 or 400?* And after training, when it is almost always right and says
# so with probability 0.99? Decide, then run.

# %%
import math

V_zh = len(corpus.tgt_vocab)
print(f"all words alike: -ln(1 / {V_zh}) = {math.log(V_zh):.2f} nats")
print(f"almost sure:     -ln(0.99)    = {-math.log(0.99):.2f} nats")

# %% [markdown]
# So a loss curve of this chapter should begin between 6 and 7 and end near 0.01. (A little above $\ln V$, as a fresh model is worse than one that
# knows nothing: it prefers words at random.) If yours begins at 40, something is wrong with the scale of the logits, before a single step was
# made. *Look at the first loss*: it is the cheapest test there is.

# %% [markdown]
# ## The learning rate: first slowly, then fast, then slowly
#
# At the start the weights are random and so are the gradients' directions. Adam, the optimizer, divides each step by a running estimate of
# the gradient's size, which at first rests on a handful of batches. Large steps now throw the weights somewhere from where they hardly come
# back. So the paper starts with tiny steps and lets them grow (*warmup*). Later, when only details are left to settle, they shrink:
#
# $$\text{rate} = d^{-0.5} \cdot \min\big(\text{step}^{-0.5},\;\; \text{step} \cdot \text{warmup}^{-1.5}\big)$$
#
# | symbol | meaning |
# |---|---|
# | step | number of the step, counted from **1** |
# | $d$ | width of the model, `d_model`: wider models take smaller steps |
# | warmup | number of steps for which the rate grows |
#
# The second term is a straight line through zero, the first one falls like $1/\sqrt{\text{step}}$. They meet where
# $\text{step} = \text{warmup}$.
#
# ### By hand
#
# $d = 64$, warmup $= 100$: then $d^{-0.5} = 1/8$ and $\text{warmup}^{-1.5} = 1/1000$.
#
# | step | $\text{step}^{-0.5}$ | $\text{step} \cdot \text{warmup}^{-1.5}$ | smaller | rate |
# |---|---|---|---|---|
# | 1 | 1 | 0.001 | 0.001 | 0.000125 |
# | 100 | 0.1 | 0.1 | 0.1 | 0.0125 |
# | 400 | 0.05 | 0.4 | 0.05 | 0.00625 |
#
# What is the rate at step 25? (0.025 is smaller than 0.2, so $0.025 / 8 = 0.003125$.)
#
# ### TODO 9.1
#
# One line. `step`, `d_model` and `warmup` are whole numbers; in Python `x ** -0.5` is $1/\sqrt{x}$. Stuck? `hint("9.1")`.


# %% todo="9.1"
def warmup_lr(step, d_model, warmup):
    """The learning rate of one step, counted from 1: a float."""
    # TODO 9.1: d^-0.5 times the smaller of the two terms
    ### BEGIN SOLUTION
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    ### END SOLUTION


# %% test="9.1" points=4
check("9.1", warmup_lr)
### BEGIN HIDDEN TESTS
from grader import grade

grade("9.1", warmup_lr)
### END HIDDEN TESTS

# %% [markdown]
# The curve is drawn from your function. *Before you move anything:* if warmup is doubled, does the peak become higher or lower?

# %%
from transformer_lab.widgets.ch09 import warmup_curve

warmup_curve(warmup_lr)

# %% [markdown]
# Lower, by $\sqrt 2$: at the peak the rate is $1/\sqrt{d \cdot \text{warmup}}$. The dashed line is what the rate would be without warmup. It starts where
# no sensible person would start. Below you will see what that does to a model.

# %% [markdown]
# ## One step of training
#
# Everything that training does is in these five lines, thousands of times:
#
# | | what | shape |
# |---|---|---|
# | 1 | the decoder's input: the target, shifted right, with `<s>` in front (chapter 07) | `tgt` `[B, m]` → `[B, m]` |
# | 2 | the logits of all places at once: *teacher forcing* | `model(src, …)` → `[B, m, V]` |
# | 3 | the loss: mean over the real words, padding left out (chapter 08) | one number |
# | 4 | the gradients: forget the old ones, then go backward | as large as the weights |
# | 5 | one step of the optimizer | |
#
# In this chapter `tgt` holds a sentence and its `</s>`, then padding. It does **not** begin with `<s>`: `shift_right(tgt, BOS)` puts it there.
#
# About line 4: `backward()` *adds* the new gradients to those that are already stored. That is useful when a batch is too large for the
# memory and comes in pieces. It also means that someone has to clear them: `optimizer.zero_grad()`.
#
# ### TODO 9.2
#
# Return the loss as a plain number, `loss.item()`. A tensor would keep every layer's activations of that batch alive.
#
# `shift_right` and `sequence_loss` are there: yours, if they pass their checks.


# %% todo="9.2"
def train_step(model, optimizer, src, tgt):
    """One teacher-forced step on src [B, n] and tgt [B, m]; returns the loss before it, a float."""
    # TODO 9.2: logits from the shifted target; loss; clear, backward, step
    ### BEGIN SOLUTION
    logits = model(src, shift_right(tgt, BOS))  # [B, m, V]
    loss = sequence_loss(logits, tgt)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION


# %% test="9.2" points=8
check("9.2", train_step)
### BEGIN HIDDEN TESTS
from grader import grade

grade("9.2", train_step)
### END HIDDEN TESTS

# %% [markdown]
# ### Break it on purpose
#
# Copy your function into a new cell under another name, change one line, and run `check("9.2", your_copy)`. Predict the verdict.
#
# 1. Leave out the shift: `model(src, tgt)`. Will the training loss be lower or higher than before?
# 2. Leave out `zero_grad()`. Which step is the first to be wrong?
# 3. Put `zero_grad()` after `backward()`. What does the loss do in ten steps?

# %% [markdown]
# ## With and without warmup
#
# A small model with two layers a side and Post-Norm (chapter 05), trained twice from the same weights on the same batches with your
# `train_step`. *Which curve will be lower after 150 steps, and by how much?*

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation.capstone import step_to_use
from transformer_lab.widgets.ch09 import warmup_race

chosen_step = step_to_use(train_step)  # yours when it passes its check, else the finished one
warmup_race(corpus, chosen_step, warmup_lr)

# %% [markdown]
# Without warmup the loss falls faster at first, as large steps quickly teach which words are frequent. Then it stays there: at a loss of about 4.7 the
# model knows the frequent words and nothing about the source. It is not slower, it is stuck: the first steps have carried the weights somewhere from where they hardly move. With Pre-Norm the damage would be smaller, which is one reason why most models use it today.
#
# (The first line of the cell tells the course's tests not to compare its output: the last digits differ between processors.)

# %% [markdown]
# ## First, eight sentences by heart
#
# Before you train on thousands of sentences: can the machine learn **eight**? It has a hundred thousand weights and more. If it cannot learn
# eight sentences by heart, no tuning will help. The structure is wrong: a missing mask, a shift too many, a part that no gradient reaches. If
# it can, you know within seconds that everything is connected. Nobody who trains models for a living skips this.
#
# ### TODO 9.3
#
# `step` is a function without arguments that makes one training step and returns its loss. Call it until a loss is **below** `goal`, but at most
# `most` times, and return the list of all losses.


# %% todo="9.3"
def overfit(step, goal=0.05, most=300):
    """Call step() until its loss is below goal, at most `most` times; return all losses, a list of floats."""
    # TODO 9.3: collect the losses; stop after the first one below goal
    ### BEGIN SOLUTION
    losses = []
    for _ in range(most):
        losses.append(step())
        if losses[-1] < goal:
            break
    return losses
    ### END SOLUTION


# %% test="9.3" points=4
check("9.3", overfit)
### BEGIN HIDDEN TESTS
from grader import grade

grade("9.3", overfit)
### END HIDDEN TESTS

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation.capstone import eight_sentences, origins

fresh, adam, eight_en, eight_zh = eight_sentences(corpus, BUDGET.settings, PARTS)
print("What the model is made of:")
print(origins(fresh))
with unfinished():
    seen = overfit(lambda: chosen_step(fresh, adam, eight_en, eight_zh))
    print(f"loss {seen[0]:.2f} at first, {seen[-1]:.3f} after {len(seen)} steps")
    print("Learned by heart." if seen[-1] < 0.05 else "Not learned: something in the structure is wrong.")

# %% [markdown]
# If it says *not learned* with your own parts: set `PARTS = {}` in a new cell, which takes finished parts only, and run the cell again. If that works,
# put your parts back one at a time, `PARTS = {"EncoderLayer": EncoderLayer}`, until it breaks.

# %% [markdown]
# ## Writing a translation
#
# Training saw all places at once. Writing cannot: word $i$ is needed before word $i + 1$ can be asked for. The loop for a whole batch:
#
# | | what | shape |
# |---|---|---|
# | once | read the source: `model.encode(src)` | `[B, n]` → memory `[B, n, d]` |
# | once | begin every sentence with `<s>` | prefix `[B, 1]` |
# | each step | `model.decode(prefix, memory, src)` | logits `[B, m, V]`, $m$ = length of the prefix |
# | | the **last** place says what comes next; take the likeliest word | `[B]` |
# | | join it to the prefix | `[B, m + 1]` |
# | end | when every row holds an `</s>`, or after `max_len` words | |
#
# Sentences end at different times. A row that is finished simply goes on with the others; what it says after its first `</s>` is thrown away.
#
# ### TODO 9.4
#
# Return a list with one list of word ids for each row, without `<s>`, up to but without `</s>`. Two things that are easy to forget: `model.eval()` switches
# dropout off, and under `torch.no_grad()` nothing is remembered for a backward pass that never comes. (`ids.index(EOS)` is the first place of `EOS` in a list.)


# %% todo="9.4"
def translate(model, src, max_len=32):
    """Greedy translations of src [B, n]: B lists of word ids, without <s> and </s>, at most max_len words."""
    # TODO 9.4: encode once; then word by word, until each row holds </s>; cut each row at its first </s>
    ### BEGIN SOLUTION
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)  # [B, n, d]
        prefix = torch.full((len(src), 1), BOS, device=src.device)  # [B, 1]
        for _ in range(max_len):
            logits = model.decode(prefix, memory, src)  # [B, m, V]
            word = logits[:, -1].argmax(dim=-1)  # [B]
            prefix = torch.cat([prefix, word[:, None]], dim=1)  # [B, m + 1]
            if (prefix == EOS).any(dim=1).all():
                break
    rows = [row[1:] for row in prefix.tolist()]
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]
    ### END SOLUTION


# %% test="9.4" points=8
check("9.4", translate)
### BEGIN HIDDEN TESTS
from grader import grade

grade("9.4", translate)
### END HIDDEN TESTS

# %% [markdown]
# ## Train
#
# Now the whole thing. With the full budget this takes 75 to 90 seconds on two free cores, longer when the machine has other work. Watch the curve: first the model learns which words
# are frequent (down to about 4), then which words go together, and at some point, quite suddenly, it starts to *read the source*.
#
# The run is saved every 200 steps beside this notebook. The file is written under another name and renamed when it is complete, so an interruption at any moment leaves the last
# good one. Press the stop button (■) and run the cell again: it goes on where it was, even after a restart of the kernel. `START_AFRESH = True` forgets the saved run.
#
# (At the end the rate falls to zero, a little faster than in the formula: with so few steps the last ones should only settle.)

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation.capstone import checkpoint_path, trainer_for
from transformer_lab.widgets.ch09 import train_and_watch

START_AFRESH = False

path = checkpoint_path(BUDGET)
if START_AFRESH:
    path.unlink(missing_ok=True)
trainer = trainer_for(corpus, BUDGET, PARTS, chosen_step, path)
train_and_watch(trainer, path)

# %% [markdown]
# ### How good is it?
#
# *Exact match* is strict: a sentence counts only if **every** word is right and in its place. Your `translate` writes; the cell compares.

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation.capstone import score, translate_to_use

write = translate_to_use(translate)
print(BUDGET)
heldout = score(write, trainer.model, corpus, corpus.heldout)
unseen = score(write, trainer.model, corpus, corpus.unseen)
print(f"held out:     {heldout}")
print(f"unseen pairs: {unseen}")
for sentence, said in (heldout.wrong + unseen.wrong)[:5]:
    print(f"\n{join(sentence.en)}\n  right: {join(sentence.zh)}\n  said:  {join(said)}")

# %% [markdown]
# What to expect, measured with the full budget (your own parts, where they pass their checks, compute the same):
#
# | seed | held out | unseen pairs |
# |---|---|---|
# | 0 | 99.4 % | 98.8 % |
# | 1 | 99.4 % | 99.4 % |
# | 2 | 99.6 % | 97.8 % |
#
# Unseen pairs are harder, and yet most come out right: the model did not learn pairs, it learned what to do with a verb and what to do with an object.
#
# Look at the mistakes, if there are any. Which kind of word goes wrong: the order, a measure word, a rare noun?

# %% [markdown]
# ## Your own sentences
#
# The model knows the words of its grammar and no others. A word outside gets a message and, where possible, similar words that it knows. First a few, then a line for you: type
# and press Enter.

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation import Translator
from transformer_lab.widgets.ch09 import type_a_sentence

translator = Translator(trainer.model, corpus)
for text in [
    "The teacher cooks rice.",
    "Did she buy two books?",
    "Tom doesn't like my cat.",
    "The teecher likes my zeppelin.",
]:
    print(f"{text:35} {translator.reply(text)}")
type_a_sentence(translator)

# %% [markdown]
# Try to find its limits. Keep a sentence and change one word. Make it negative, make it a question, move it into the past: which Chinese words
# change, and where? Then write something that the grammar would never say.

# %% [markdown]
# ## Look inside: who looks at whom?
#
# While the decoder writes a word, its cross-attention (chapter 07) gives weights to the source words. Nobody ever told the model which English word belongs to which Chinese
# one; it had whole sentences only. Left: the weights, one row for each word as it is written. Right: the same as lines from the Chinese words (below) to the English ones (above).
# The head shown first is the one that agrees best with the grammar's own alignment.
#
# *Predict:* where time or place moves in front of the verb, what must the lines do?

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.widgets.ch09 import alignment_map

alignment_map(translator, crossing(corpus.heldout))

# %% [markdown]
# They cross. Follow one target word after the other with the slider:
#
# 1. Find a pair of words whose lines cross. Which comes first in English?
# 2. Find a Chinese word that has no English counterpart, such as 了 or 吗. Where does the model look while it writes that word?
# 3. Choose other heads. Does each have a job?
#
# Remember chapter 04: attention shows where the model *looks*. What it does with what it sees is decided by the values and by everything behind.

# %% [markdown]
# ## Greedy against beam
#
# Greedy takes the likeliest word at each place. Beam search (chapter 08) keeps several beginnings. The sentences below are those of the held-out set about which the model was least sure.
# *Will the beam often find something better?*

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.widgets.ch09 import greedy_and_beam, least_sure

doubtful = least_sure(translator, corpus.heldout)
greedy_and_beam(translator, doubtful, greedy, beam_search)

# %% [markdown]
# After the full training: rarely. The model is nearly always sure of each word, and where one beginning is far ahead there is nothing to search for. Where the beam
# does find another sentence, that one is more probable and not always right. Beam search pays where there are many good translations; our grammar has exactly one for each sentence.

# %% [markdown]
# ## What is each part for?
#
# Take one part away, train again with the same budget, and look. *Before you read the table:* without the causal mask, will the training loss be higher or lower than that of the full model?
#
# Measured with the *small* budget (sentences of at most 7 words, one layer a side) and finished parts:
#
# | | training loss at the end | held out, exact |
# |---|---|---|
# | full model | 0.006 | 93 % |
# | no positions | 0.015 | 82 % |
# | no causal mask | **0.0005** | **0 %** |
# | one head instead of four | 0.010 | 84 % |
# | no residual connections | 2.1 | 0 % |
#
# * **No causal mask**: the lowest training loss of all, and not one right sentence. It learned to copy the answer from its own input. A falling loss proves nothing by itself.
# * **No positions**: less bad than you may have thought. In sentences this short a set of words often has only one sensible order, and the decoder's causal mask tells it how many
#   words stand before. Longer sentences suffer more.
# * **One head**: of the same size, and a little worse. It can look at one place only for each word.
# * **No residual**: hardly anything arrives at the lower layers, and it learns hardly more than which words are frequent.
#
# To measure it yourself, with your own parts, set `MEASURE = True`. It trains five models with the *small* budget: a minute or two.

# %%
# NBVAL_IGNORE_OUTPUT
from transformer_lab.translation.capstone import BUDGETS
from transformer_lab.translation import ablation

MEASURE = False

if MEASURE:
    small = BUDGETS["small"]
    print(small)
    for row in ablation(corpus_for(small), small.settings, PARTS, progress=False):
        print(f"{row.name:16} loss {row.loss:6.3f}   held out {row.heldout:6.1%}")

# %% [markdown]
# ## Review
#
# Choose an answer; each one tells you what it means.

# %%
question("9-a")

# %%
question("9-b")

# %%
question("9-c")

# %%
question("9-d")

# %%
question("9-e")

# %%
question("9-f")

# %%
question("9-g")

# %% [markdown]
# ## Think further
#
# <details><summary><b>Exact match of 99 %. Does the model know Chinese?</b></summary>
#
# It knows this grammar: some hundred words and the patterns that somebody wrote down. Real text has several good translations of each sentence, so exact match would be far too strict there;
# one compares pieces of the sentences (BLEU), or asks a second model or people. And a real system has word *pieces*, so that no word is ever unknown.
# What carries over is the machine: the same code, with more layers, more words and more sentences, translates newspapers.
# </details>
#
# <details><summary><b>In training the decoder always gets the right earlier words; in use it gets its own. Is that a problem?</b></summary>
#
# It can be. After a wrong word the model stands on a beginning that it never met in training, and the next word may be worse still: errors add up in long texts (*exposure bias*). Here it hardly
# matters, as errors are rare. Remedies: show the model its own words now and then during training, or train on the quality of whole outputs, as reinforcement learning does with language models.
# </details>
#
# <details><summary><b>Today's large models have no encoder. How do they translate?</b></summary>
#
# The source stands in front of the target in one sequence: *Translate: She is reading. →*. Self-attention does what cross-attention did: later tokens look back at the source. One stack serves both, and every text in
# the world is training data. The price: the source is read with a causal mask too, so its words cannot look at later ones.
# </details>
#
# <details><summary><b>Each new word runs the decoder over the whole prefix again. What could be kept?</b></summary>
#
# The keys and values of all earlier words, in every layer: under the causal mask they never change when a word is added. Keeping them (the *KV cache*) turns each step into the work of one word. It costs memory, $2 \cdot N \cdot d$ numbers
# for each token, which for long texts becomes the largest item of all.
# </details>

# %% [markdown]
# ## What you built
#
# * a schedule, a training step, a test by heart, and a loop that writes;
# * **a translator**: a Transformer that reads a sentence it has never seen, reorders it, and writes it in another language;
# * and the habit of looking: at the first loss, at eight sentences, at held-out pairs, at the attention.
#
# Eight chapters ago a word was a number in a table. Now every arrow in the picture of chapter 00 is code that you have written or could write. That is the whole machine.
