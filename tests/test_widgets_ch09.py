"""The pictures of chapter 09, on right and on wrong implementations; its budgets, parts and exercises."""

from dataclasses import replace

import ipywidgets
import numpy as np
import pytest
import torch

from grader.exercises import get
from grader.exercises.ch09.train_step import flattened
from grader.exercises.ch09.translate import reference as reference_translate
from grader.judging.judge import judge_fresh
from tests.own_parts import solved_course
from transformer_lab import parts
from transformer_lab.checking.probes.core import observe
from transformer_lab.translation import (
    Settings,
    Trainer,
    Translator,
    capstone,
    make_corpus,
    overfit,
    train_step,
    warmup_lr,
)
from transformer_lab.widgets import ch09, fonts

PNG = b"\x89PNG"
TINY = Settings(d_model=16, h=2, d_ff=32, N=1, epochs=1, batch_size=20, warmup=10, dropout=0.0)


def todo(*_args, **_kwargs):
    raise NotImplementedError("TODO 9.1")


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(seed=3, train=400, heldout=20, unseen=10)


@pytest.fixture(scope="module")
def fluent(corpus):
    """A translator that knows eight sentences by heart, and these sentences."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    trainer = overfit(corpus)
    torch.set_num_threads(before)
    return Translator(trainer.model, trainer.corpus), trainer.corpus.train


# ---- the schedule ----


def test_warmup_rises_to_its_peak_and_falls():
    data = ch09.warmup_data(warmup_lr, 64, 100)
    assert data.steps[data.rates.argmax()] == 100
    assert data.rates.max() == pytest.approx((64 * 100) ** -0.5)
    falling = data.steps >= 100
    assert np.allclose(data.rates[falling], data.bare[falling])


@pytest.mark.parametrize(
    "name", ["max", "no width", "warmup to -0.5", "never falls", "only falling", "product"]
)
def test_a_mistake_shows_in_the_schedule(name):
    right, wrong = (ch09.warmup_data(f, 96, 400).rates for f in (warmup_lr, exercises_of("9.1")[name]))
    assert not np.allclose(right, wrong, rtol=0.05)


def exercises_of(number):
    return {wrong.name: wrong.symbol for wrong in get(number).misconceptions}


def test_warmup_draws():
    picture = ch09.warmup_curve(warmup_lr)
    before = picture.png()
    assert before.startswith(PNG) and "at step 400" in picture.summary()
    assert picture.set(warmup=100, d_model=64).png() != before
    assert "its peak is 0.013 at step 100" in picture.summary()


def test_an_unfinished_todo_is_said():
    assert "Finish TODO 9.1" in ch09.warmup_curve(todo).summary()


def test_the_race_runs_the_learners_functions(corpus):
    rates = []

    def step(model, optimizer, src, tgt):
        rates.append(optimizer.param_groups[0]["lr"])
        return 1.0

    state = torch.get_rng_state()
    picture = ch09.warmup_race(corpus, step, warmup_lr, steps=3)
    assert rates[:3] == [warmup_lr(i, 64, 400) for i in (1, 2, 3)]
    assert rates[3:] == pytest.approx([(64 * i) ** -0.5 for i in (1, 2, 3)])
    assert picture.png().startswith(PNG) and "After 3 steps" in picture.summary()
    assert torch.equal(state, torch.get_rng_state())


# ---- the falling loss ----


def test_running_mean():
    data = ch09.loss_data([4.0, 2.0, *[1.0] * 40], 100)
    assert data.smooth[:3] == pytest.approx([4.0, 3.0, 7 / 3])
    assert data.smooth[-1] == 1.0


def test_loss_curve_draws_with_and_without_losses():
    assert "no step has been made" in ch09.LossCurve([], 10).summary()
    picture = ch09.LossCurve([5.0, 2.0], 10)
    assert picture.png().startswith(PNG) and "Step 2 of 10: the loss fell from 5.00" in picture.summary()


def test_the_watch_shows_a_bar_at_most_once_a_second(corpus):
    now = [0.0]
    trainer = Trainer(corpus, TINY)
    watch = ch09.Watch(trainer, clock=lambda: now[0])
    shown = []
    watch._show = lambda data, metadata=None: shown.append(data)
    for seconds in (0.2, 0.9, 1.3, 1.5, 2.5):
        now[0] = seconds
        trainer.train(1, on_progress=watch, every=1, progress=False)
    assert len(shown) == 2
    assert (
        '<progress value="3" max="20"' in shown[0]["text/html"] and "Step 3 of 20" in shown[0]["text/plain"]
    )
    assert "s left" in shown[0]["text/html"] and 'alt="Step 3' in shown[0]["text/html"]
    watch.finish(trainer)
    assert shown[-1]["image/png"].startswith(PNG) and "Step 5 of 20" in shown[-1]["text/plain"]


def test_the_stop_button_is_said_and_training_goes_on(corpus, tmp_path, capsys):
    calls = []

    def step(model, optimizer, src, tgt):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return train_step(model, optimizer, src, tgt)

    trainer = Trainer(corpus, TINY, step=step)
    ch09.train_and_watch(trainer, tmp_path / "run.pt", save_every=4)
    assert "Stopped after step 5" in capsys.readouterr().out
    assert len(Trainer(corpus, TINY).resume(tmp_path / "run.pt").losses) == 4
    ch09.train_and_watch(trainer, tmp_path / "run.pt")
    assert len(trainer.losses) == trainer.total_steps


# ---- who looks at whom ----


def test_alignment_counts_crossings():
    weights = np.eye(4)[[2, 0, 1, 3]]
    data = ch09.AlignmentData(("a", "b", "c", "</s>"), ("x", "y", "z", "</s>"), weights, 0, "head 1")
    assert data.strongest.tolist() == [2, 0, 1] and data.crossings == 2


def test_alignment_is_that_of_the_model(fluent):
    translator, sentences = fluent
    data = ch09.alignment_data(translator, sentences[0].en, 1, 2, 1)
    assert data.source == (*sentences[0].en, "</s>") and data.target == (*sentences[0].zh, "</s>")
    assert np.allclose(data.weights.sum(-1), 1, atol=1e-5)
    mean = ch09.alignment_data(translator, sentences[0].en, 1, None, 1)
    assert not np.allclose(mean.weights, data.weights)


def test_alignment_draws_every_sentence_head_and_word(fluent):
    translator, sentences = fluent
    picture = ch09.alignment_map(translator, sentences)
    before = picture.png()
    assert before.startswith(PNG) and "the model looks most at" in picture.summary()
    for i in range(len(sentences)):
        assert picture.set(sentence=i, word=12, head=(0, None)).png() != before
        assert "</s>" in picture.summary() or len(sentences[i].zh) >= 12
    assert picture.problem == ""


def test_words_are_numbered_without_a_chinese_font(fluent, monkeypatch):
    monkeypatch.setattr(fonts, "cjk_family", lambda: None)
    picture = ch09.alignment_map(*fluent)
    assert picture.map.get_yticklabels()[0].get_text() == "word 1"


def test_best_head_needs_a_right_translation(corpus):
    untrained = Translator(Trainer(corpus, TINY).model, corpus)
    assert ch09.best_head(untrained, corpus.heldout[:3]) == (0, 0)


def test_crossing_sentences_come_first(corpus):
    first, *rest = ch09.crossing(corpus.train, 5)
    assert len(rest) == 4
    assert [j for _, j in sorted(first.alignment)] != sorted(j for _, j in first.alignment)


# ---- greedy beside beam ----


def test_greedy_and_beam(fluent):
    translator, sentences = fluent
    picture = ch09.greedy_and_beam(translator, sentences, parts.greedy, parts.beam_search)
    assert picture.png().startswith(PNG) and "The beam finds the same sentence." in picture.summary()
    data = picture._data
    assert data.words["greedy"] == (*sentences[0].zh, "</s>")
    assert data.total("greedy") == pytest.approx(float(data.logs["greedy"].sum()))

    def backwards(*arguments):
        return parts.greedy(*arguments)[::-1]

    other = ch09.greedy_and_beam(translator, sentences, backwards, parts.beam_search)
    assert other.png() != picture.png() and "(wrong, log-probability" in other.summary()


def test_least_sure_sentences_come_first(fluent):
    translator, sentences = fluent

    def total(sentence):
        return ch09.search_data(translator, sentence, parts.greedy, parts.beam_search, 1, 0.0).total("greedy")

    assert ch09.least_sure(translator, sentences, 3) == sorted(sentences, key=total)[:3]


# ---- typing ----


def test_typed_sentences_and_unknown_words(fluent):
    typed = ch09.type_a_sentence(fluent[0])
    typed.line.value = "The zeppelin sleeps."
    assert "zeppelin" in typed.answer.value and "not in the training vocabulary" in typed.answer.value
    typed.line.value = "<b>hat</b>"
    assert "<b>" not in typed.answer.value
    assert isinstance(typed.line, ipywidgets.Text) and repr(typed) == "Typed()"


# ---- budgets, parts, scores ----


def test_the_budget_follows_the_environment(monkeypatch):
    for execution, variable, expected in (
        (None, None, "full"),
        (None, "small", "small"),
        ("autograde", "full", "tiny"),
        ("validate", None, "tiny"),
    ):
        for name, value in (("NBGRADER_EXECUTION", execution), (capstone.VARIABLE, variable)):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
        assert capstone.budget().name == expected
    monkeypatch.delenv("NBGRADER_EXECUTION")
    monkeypatch.setenv(capstone.VARIABLE, "huge")
    with pytest.raises(ValueError, match="full, small, tiny"):
        capstone.budget()


def test_a_small_corpus_has_short_sentences_of_known_words():
    tiny = capstone.corpus_for(capstone.BUDGETS["tiny"])
    assert tiny.heldout and tiny.unseen
    for sentence in tiny.train + tiny.heldout + tiny.unseen:
        assert len(sentence.en) <= capstone.SHORT
        assert set(sentence.en) <= set(tiny.src_vocab) and set(sentence.zh) <= set(tiny.tgt_vocab)


def test_without_notebooks_every_part_is_finished(tmp_path):
    said = []
    chosen = capstone.choose_parts(tmp_path, said.append)
    assert list(chosen) == list(capstone.USED)
    assert all(part is getattr(parts, name) for name, part in chosen.items())
    assert len(said) == 1 and "Finished parts, as you have none yet (20)" in said[0]


def test_a_solved_course_gives_own_parts_that_use_each_other(tmp_path, corpus):
    said = []
    chosen = capstone.choose_parts(solved_course(tmp_path), said.append)
    assert said == [f"Yours ({len(capstone.USED)}): {', '.join(capstone.USED)}."]
    trainer = Trainer(corpus, TINY, chosen)
    assert "finished" not in capstone.origins(trainer.model)
    trainer.train(3, progress=False)
    found = Translator(trainer.model, corpus).align(corpus.heldout[0].en)
    assert found.weights.shape[:2] == (1, 2)


def test_a_saved_run_goes_on_and_another_run_is_left(corpus, tmp_path, capsys):
    tiny, path = replace(capstone.BUDGETS["tiny"], settings=TINY), tmp_path / "run.pt"
    capstone.trainer_for(corpus, tiny, {}, train_step).train(5, checkpoint=path, progress=False)
    assert len(capstone.trainer_for(corpus, tiny, {}, train_step, path).losses) == 5
    assert "5 steps are done" in capsys.readouterr().out
    other = capstone.trainer_for(corpus, replace(tiny, settings=replace(TINY, N=2)), {}, train_step, path)
    assert other.losses == [] and "holds another run" in capsys.readouterr().out
    path.write_bytes(b"not a checkpoint")
    assert capstone.trainer_for(corpus, tiny, {}, train_step, path).losses == []


def test_checkpoints_of_small_budgets_stay_out_of_the_folder():
    assert capstone.checkpoint_path(capstone.BUDGETS["full"]).parent == capstone.Path()
    assert capstone.checkpoint_path(capstone.BUDGETS["small"]).parent.is_absolute()


def test_score_counts_what_the_learners_function_writes(fluent, corpus):
    translator, sentences = fluent
    good = capstone.score(reference_translate, translator.model, corpus, sentences)
    assert good.exact == 1.0
    bad = capstone.score(exercises_of("9.4")["last word lost"], translator.model, corpus, sentences)
    assert bad.exact == 0.0 and len(bad.wrong) == 8


def test_own_functions_are_used_when_they_pass():
    said = []
    own = flattened
    assert capstone.step_to_use(own, said.append) is own
    assert capstone.step_to_use(todo, said.append) is train_step
    wrong = exercises_of("9.4")["keeps end"]
    assert capstone.translate_to_use(wrong, said.append) is capstone.greedy_batch
    assert said[0] == "train_step: yours." and "check 9.4" in said[2]


# ---- what the exercises promise ----


def report(number, symbol):
    return judge_fresh(number, lambda case: observe(symbol, case), seed=1)


def test_a_loop_without_an_end_is_stopped():
    assert "has no end" in str(report("9.3", exercises_of("9.3")["no limit"]))

    def forever(model, src, max_len=32):
        memory, prefix = model.encode(src), torch.full((len(src), 1), 1)
        while True:
            model.decode(prefix, memory, src)

    assert "has no end" in str(report("9.4", forever))


def test_swapped_source_and_target_are_named():
    def swapped(model, optimizer, src, tgt):
        return train_step(model, optimizer, tgt, src)

    assert "change places" in str(report("9.2", swapped))
