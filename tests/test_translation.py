"""The two-language grammar, its splits, and the machinery that trains and translates."""

import itertools
import os
import random
import re
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import torch

from transformer_lab.parts import BOS, EOS, PAD, Transformer
from transformer_lab.translation import (
    Settings,
    Trainer,
    Translator,
    UnknownWordsError,
    ablation,
    checkpoint,
    decoding,
    join,
    lexicon,
    make_corpus,
    overfit,
    sentence,
    tokenize,
    training,
)
from transformer_lab.translation.benchmark import compare_throughput, measure
from transformer_lab.translation.data import batches, holds_pair, lemma_of
from transformer_lab.translation.training import warmup_lr

TINY = Settings(d_model=16, h=2, d_ff=32, N=1, epochs=2, batch_size=20, warmup=10, dropout=0.1)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def many():
    rng = random.Random(7)
    return [sentence(rng) for _ in range(12_000)]


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(seed=3, train=4_000, heldout=200, unseen=100)


@pytest.fixture(scope="module")
def small(corpus):
    return replace(corpus, train=corpus.train[:400])


def sample(many, pattern):
    """Sentences whose English matches, as (English, Chinese) text."""
    texts = ((" ".join(s.en), " ".join(s.zh)) for s in many)
    return [pair for pair in texts if re.search(pattern, pair[0])]


# ------------------------------------------------------------------------------------- the grammar
def test_at_least_two_hundred_words_a_side(many):
    for side in ("en", "zh"):
        assert len({word for s in many for word in getattr(s, side)}) >= 200


def test_one_translation_each_way(many):
    there, back = defaultdict(set), defaultdict(set)
    for s in many:
        there[s.en].add(s.zh)
        back[s.zh].add(s.en)
    assert max(map(len, there.values())) == 1
    assert max(map(len, back.values())) == 1


def test_number_can_be_told_where_chinese_needs_it(many):
    """ "Which sheep" and "the sheep that we saw" may mean one or many: then the verb must say which."""
    assert not sample(many, r"\bwhich (\w+ ){0,2}(sheep|fish)\b")
    for en, _ in sample(many, r"\bthe (\w+ ){0,2}(sheep|fish) that\b"):
        assert re.search(r"\b(is|are)\b", en), en


def test_sentences_are_deterministic():
    assert [sentence(random.Random(5)) for _ in range(3)] == [sentence(random.Random(5))] * 3


MEASURED = re.compile(
    r"(?:一|两|三|四|五|六|十|这|那|哪|几|第[一二三]|每) (\S+) ((?:\S+ )*?\S+)(?= [。？，]|$| )"
)


def test_measure_word_is_the_nouns_own(many):
    """Wherever a number or 这/那/哪/几 stands, the next word is the measure word of the noun it counts."""
    nouns = [*lexicon.NOUNS.values(), *lexicon.PEOPLE.values()]
    measures = {noun.zh: noun.measure for noun in nouns}
    containers = {row[2] for row in lexicon.CONTAINERS.values()}
    known = {*measures.values(), *containers}
    starters = {*"一两三四五六十这那哪几每", *lexicon.ORDINALS.values()}
    checked = 0
    for s in many:
        for i, word in enumerate(s.zh[:-2]):
            if word not in starters:
                continue
            measure = s.zh[i + 1]
            assert measure in known, s
            noun = next((w for w in s.zh[i + 2 :] if w in measures), None)
            if measure not in containers and noun:
                assert measures[noun] == measure, " ".join(s.zh)
                checked += 1
    assert checked > 3_000


def test_two_is_liang_before_measure_words(many):
    assert not any("二" in s.zh for s in many)
    assert all("两" in zh.split() for _, zh in sample(many, r"\btwo\b"))


def test_articles(many):
    for s in many:
        for article, following in zip(s.en, s.en[1:], strict=False):
            if article == "an":
                assert following[0] in "aeiou", s.en
            if article == "a":
                assert following[0] not in "aeiou", s.en


def test_negation_is_mei_for_the_past_and_bu_otherwise(many):
    past, present, have = (
        sample(many, p) for p in (r"\bdid not\b", r"\bdo(es)? not\b", r"\b(do|does) not have\b")
    )
    assert len(past) > 200 and all(" 没 " in zh and " 了 " not in zh for _, zh in past if "because" not in _)
    assert all(" 没 有 " in zh for _, zh in have)
    assert all(" 不 " in zh for en, zh in present if " have " not in en)


def test_questions(many):
    for s in many:
        asks = s.en[-1] == "?"
        assert asks == (s.zh[-1] == "？")
        question_words = {"what", "who", "whose", "which", "how", "where", "when", "why"} & {s.en[0]}
        assert ("吗" in s.zh) == (asks and not question_words), (s.en, s.zh)
    for english, chinese in (
        ("what", "什么"),
        ("where", "哪里"),
        ("when", "什么时候"),
        ("why", "为什么"),
        ("who", "谁"),
    ):
        asked = sample(many, f"^{english} ")
        assert len(asked) > 30 and all(chinese in zh.split() for _, zh in asked)


def test_word_order_crosses(many):
    """Time and place stand last in English and before the verb in Chinese."""
    crossing = 0
    for s in many:
        links = sorted(s.alignment)
        crossing += any(j > k for (_, j), (_, k) in itertools.pairwise(links))
    assert crossing / len(many) > 0.5
    for _, zh in sample(many, r"bought .* in the shop yesterday \.$"):
        assert re.search("昨天 .*在 商店 .*买", zh)


def test_third_person_and_do_support(many):
    assert not sample(many, r"^(he|she|tom|mary) (do|are|were|have|like|want|need|know) ")
    assert not sample(many, r"^(i|we|they|you) (does|is|has|likes|wants|was) (?!.*than)") or not sample(
        many, r"^(we|they|you) (does|is|has|likes|wants|was) "
    )
    assert not sample(
        many, r"\b(does|did|do|will|can|should|must) (not )?(\w+s|went|bought|saw)\b (the|a|his)"
    )


def test_alignment_points_at_words(many):
    for s in many[:2_000]:
        assert s.alignment
        assert all(0 <= i < len(s.en) and 0 <= j < len(s.zh) for i, j in s.alignment)
        last = len(s.en) - 1, len(s.zh) - 1
        assert last in s.alignment  # "." and "。"
    example = next(s for s in many if s.en[:3] == ("there", "are", "two"))
    words = {(example.en[i], example.zh[j]) for i, j in example.alignment}
    assert ("two", "两") in words and ("are", "有") in words


def test_every_kind_of_phrase_occurs(many):
    text = Counter(word for s in many for word in s.zh)
    for word in (
        "把",
        "比",
        "吗",
        "都",
        "地",
        "们",
        "因为",
        "一起",
        "正在",
        "太",
        "一样",
        "的",
        "没",
        "不",
        "谁",
    ):
        assert text[word] > 50, word


# ------------------------------------------------------------------------------------- the split
def test_sets_share_words_but_no_sentence(corpus):
    sets = [corpus.train, corpus.heldout, corpus.unseen]
    assert [len(s) for s in sets] == [4_000, 200, 100]
    for side in ("en", "zh"):
        sides = [getattr(s, side) for part in sets for s in part]
        assert len(set(sides)) == len(sides)
    for s in corpus.heldout + corpus.unseen:
        assert set(s.en) <= set(corpus.src_vocab) and set(s.zh) <= set(corpus.tgt_vocab)


def test_held_out_pairs_never_stand_together_in_training(corpus):
    lemmas = lemma_of()
    assert sum(map(len, corpus.banned.values())) > 30
    assert not any(holds_pair(s.en, corpus.banned, lemmas) for s in corpus.train + corpus.heldout)
    assert all(holds_pair(s.en, corpus.banned, lemmas) for s in corpus.unseen)
    seen = {lemmas[w] for s in corpus.train for w in s.en if w in lemmas}
    for verb, nouns in corpus.banned.items():
        assert verb in seen and nouns <= seen


def test_splits_depend_only_on_the_seed():
    first, again, other = (make_corpus(seed, 200, 20, 10) for seed in (1, 1, 2))
    assert first.train == again.train and first.unseen == again.unseen
    assert first.train != other.train


def test_the_other_direction():
    corpus = make_corpus(0, 100, 10, 5, source="zh")
    src, tgt = corpus.encode(corpus.train[:1])
    words = list(corpus.src_vocab)
    assert tuple(words[i] for i in src[0, :-1]) == corpus.train[0].zh
    assert src[0, -1] == tgt[0, -1] == EOS


def test_batches_cover_everything_once_and_hold_little_padding(corpus):
    src, tgt = corpus.encode(corpus.train)
    seen, padding, total = [], 0, 0
    for s, t in batches(src, tgt, 64, torch.Generator().manual_seed(0)):
        seen += [tuple(row[row != PAD].tolist()) for row in s]
        padding += int((s == PAD).sum() + (t == PAD).sum())
        total += s.numel() + t.numel()
    assert Counter(seen) == Counter(tuple(row[row != PAD].tolist()) for row in src)
    assert padding / total < 0.08


# ------------------------------------------------------------------------------------- text
def test_typed_sentences(corpus):
    vocab = corpus.src_vocab
    assert tokenize("Tom's mother didn't buy a book", vocab) == [
        "tom",
        "'s",
        "mother",
        "did",
        "not",
        "buy",
        "a",
        "book",
        ".",
    ]
    assert tokenize("  Did she  buy a book?", vocab) == ["did", "she", "buy", "a", "book", "?"]
    assert tokenize("What will he buy", vocab)[-1] == "?"
    with pytest.raises(ValueError, match="nothing to translate"):
        tokenize("   ", vocab)


def test_unknown_words_are_named_with_near_ones(corpus):
    with pytest.raises(
        UnknownWordsError, match=r"'teecher' is not in the training vocabulary.*teacher"
    ) as caught:
        tokenize("The teecher likes my zeppelin.", corpus.src_vocab)
    assert caught.value.words == ("teecher", "zeppelin")


def test_special_tokens_cannot_be_typed(corpus):
    with pytest.raises(UnknownWordsError):
        tokenize("pad <s> unk", corpus.src_vocab)


def test_chinese_without_blanks_is_cut_into_the_words_of_the_grammar(many):
    vocab = {word: 0 for s in many for word in s.zh}
    good = sum(tokenize("".join(s.zh), vocab) == list(s.zh) for s in many[:1_000])
    assert good >= 990


def test_join():
    assert (
        join(["tom", "'s", "mother", "and", "i", "like", "english", "."])
        == "Tom's mother and I like English."
    )
    assert join(["她", "买", "了", "两", "本", "书", "。"]) == "她买了两本书。"


# ------------------------------------------------------------------------------------- training
def test_warmup_rises_and_falls():
    rates = [warmup_lr(step, 64, 100) for step in range(1, 1_000)]
    assert rates.index(max(rates)) == 99
    assert warmup_lr(50, 64, 100) == pytest.approx(64**-0.5 * 50 * 100**-1.5)
    assert warmup_lr(400, 64, 100) == pytest.approx(64**-0.5 * 400**-0.5)


def test_train_step_returns_the_loss_before_it(corpus):
    trainer = Trainer(corpus, replace(TINY, dropout=0.0))
    src, tgt = trainer.src[:8], trainer.tgt[:8]
    tgt_in = torch.cat([torch.full((8, 1), BOS), tgt[:, :-1]], 1)
    before = torch.nn.functional.cross_entropy(
        trainer.model(src, tgt_in).flatten(0, 1), tgt.flatten(), ignore_index=PAD
    ).item()
    assert training.train_step(trainer.model, trainer.optimizer, src, tgt) == pytest.approx(before, rel=1e-5)
    assert training.train_step(trainer.model, trainer.optimizer, src, tgt) < before


@pytest.fixture(scope="module")
def memorised(corpus):
    return overfit(corpus)


def test_eight_sentences_are_learnt_by_heart(corpus, memorised):
    assert memorised.losses[-1] < 0.05
    assert decoding.exact_match(memorised.model, corpus, corpus.train[:8]).exact == 1.0


def test_the_learners_step_and_the_callback_are_used(corpus):
    calls, pictures = [], []

    def step(model, optimizer, src, tgt):
        calls.append(optimizer.param_groups[0]["lr"])
        return 1.0

    trainer = Trainer(corpus, TINY, step=step)
    trainer.train(10, on_progress=lambda t: pictures.append(len(t.losses)), every=4, progress=False)
    assert trainer.losses == [1.0] * 10 and pictures == [4, 8, 10]
    assert calls == [trainer.learning_rate(i) for i in range(1, 11)]


def test_autograding_trains_a_few_steps_only(corpus, monkeypatch, capfd):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    trainer = Trainer(corpus, TINY).train()
    assert len(trainer.losses) == TINY.autograde_steps
    assert capfd.readouterr().err == ""


def test_resumed_training_equals_uninterrupted_training(small, tmp_path):
    whole = Trainer(small, TINY).train(progress=False)
    path = tmp_path / "run.pt"
    Trainer(small, TINY).train(27, checkpoint=path, save_every=10, progress=False)
    torch.manual_seed(99)
    rest = Trainer(small, TINY).resume(path).train(progress=False)
    assert len(whole.losses) == 40 and rest.losses == whole.losses
    for a, b in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_interrupted_save_leaves_the_last_good_file(corpus, tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    trainer = Trainer(corpus, TINY).train(5, checkpoint=path, progress=False)
    good = path.read_bytes()

    def interrupted(state, file):
        file.write(b"half a checkpoint")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(5, checkpoint=path, progress=False)
    assert path.read_bytes() == good and os.listdir(tmp_path) == ["run.pt"]
    assert len(Trainer(corpus, TINY).resume(path).losses) == 5


def test_resume_refuses_another_run_and_ignores_a_missing_file(corpus, tmp_path):
    Trainer(corpus, TINY).train(1, checkpoint=tmp_path / "run.pt", progress=False)
    with pytest.raises(ValueError, match="other settings"):
        Trainer(corpus, replace(TINY, N=2)).resume(tmp_path / "run.pt")
    assert Trainer(corpus, TINY).resume(tmp_path / "none.pt").losses == []


# ------------------------------------------------------------------------------------- translating
@pytest.fixture(scope="module")
def fluent(corpus, memorised):
    """The translator of a model that knows eight sentences by heart."""
    return Translator(memorised.model, corpus)


def test_translator(corpus, fluent):
    known = corpus.train[0]
    assert fluent.translate(join(known.en)) == join(known.zh)
    assert "not in the training vocabulary" in fluent.reply("The zeppelin sleeps.")
    assert fluent.beam(known.en, width=3) == list(known.zh) == fluent.beam(known.en, width=1)


def test_batched_greedy_is_greedy_one_by_one(corpus):
    model = Transformer(len(corpus.src_vocab), len(corpus.tgt_vocab), 16, 2, 32, 1, 64, 0.0)
    src, _ = corpus.encode(corpus.train[:6])
    together = decoding.greedy_batch(model, src, 7)
    for row, ids in zip(src, together, strict=True):
        alone = decoding.greedy_batch(model, row[row != PAD][None], 7)[0]
        assert alone == ids and len(ids) <= 7


def test_alignment_has_a_row_for_each_target_token(corpus, fluent):
    known = corpus.train[1]
    found = fluent.align(known.en)
    assert found.target == [*known.zh, "</s>"] and found.source == [*known.en, "</s>"]
    assert found.weights.shape == (2, 4, len(known.zh) + 1, len(known.en) + 1)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(found.weights.shape[:-1]))


def test_alignment_accuracy_counts_looks_at_true_counterparts(corpus, fluent, monkeypatch):
    known = corpus.train[1]
    found = fluent.align(known.en)
    perfect = torch.zeros_like(found.weights)
    for en, zh in known.alignment:
        perfect[:, 0, zh, en] = 1  # head 0 looks at the truth, the others at the first word
    perfect[:, 1:, :, 0] = 1
    monkeypatch.setattr(fluent, "align", lambda words: replace(found, weights=perfect))
    shares = fluent.alignment_accuracy([known])
    assert shares.shape == (2, 4)
    assert (shares[:, 0] == 1).all() and (shares[:, 1:] < 1).all()


def test_ablation_trains_every_variant(small):
    rows = list(ablation(small, replace(TINY, epochs=1, dropout=0.0), sentences=20, progress=False))
    assert [row.name for row in rows] == [
        "full model",
        "no positions",
        "no causal mask",
        "one head",
        "no residual",
    ]
    assert all(0 <= row.heldout <= 1 and row.loss > 0 for row in rows)


def test_ablation_reaches_into_a_transformer_somebody_else_wrote(small):
    class Own(Transformer):
        takes_parts = False

        def __init__(self, *sizes):
            super().__init__(*sizes)

    few = replace(TINY, epochs=1, dropout=0.0)
    theirs = list(ablation(small, few, {"Transformer": Own}, sentences=5, progress=False))
    finished = list(ablation(small, few, sentences=5, progress=False))
    assert [row.loss for row in theirs] == [row.loss for row in finished]
    assert len({row.loss for row in theirs}) == len(theirs)


def test_throughput_is_compared_on_the_same_batches(corpus):
    speed = compare_throughput(corpus, TINY, steps=3)
    assert speed.ours > 0 and speed.torch > 0


def test_the_benchmark_says_what_it_measured(small):
    line = measure(0, small, replace(TINY, epochs=1))
    assert re.search(
        r"seed 0: \d+ s on 1 threads .* held out \d+ of 200 exact .* unseen pairs \d+ of 100", line
    )
