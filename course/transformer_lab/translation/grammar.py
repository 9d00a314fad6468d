"""Sentences in English and Chinese, drawn at random from a grammar written for this course.

`sentence(rng)` draws one. The two languages say the same thing, each in its own order; one English
sentence has exactly one Chinese one and the other way round (the data module and the tests check it).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from . import lexicon as lx
from .clauses import Clause, because, closing, is_a
from .lexicon import ADJECTIVES, COLOURS, NOUNS
from .phrases import (
    DETERMINERS,
    NOTHING,
    Draw,
    NounPhrase,
    Phrase,
    owner,
    pair,
    pronoun,
    thing,
    tokens,
    transport,
)
from .slots import (
    INDEFINITE,
    MADE,
    an_object,
    asked_object,
    complete,
    described,
    determiners,
    other_person,
    set_every,
    set_time,
    subject,
)

LONGEST = 24  # tokens a side, the closing mark included
SPOKEN_OF = {  # adjective: the things it may be said of
    adjective: tuple(
        noun for group, said in lx.SAID_OF.items() if adjective in said for noun in lx.GROUPS[group]
    )
    for adjective in ADJECTIVES
    if any(adjective in said for said in lx.SAID_OF.values())
}
ANIMALS = tuple(lx.GROUPS["pets"] + lx.GROUPS["farm"])


@dataclass(frozen=True)
class Sentence:
    en: tuple[str, ...]
    zh: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]  # (English position, Chinese position)
    kind: str


# ------------------------------------------------------------------------------------- kinds of sentence
def mood(draw: Draw, tense: str, questions: dict[str, float]) -> tuple[bool, str]:
    """Whether it is denied, and what it asks."""
    kind = draw.weighted({"": 52, "not": 18, **questions})
    return (kind == "not", "" if kind == "not" else kind)


def someone(draw: Draw, negated: bool, question: str) -> NounPhrase:
    if question == "who":
        both = pair(draw, "who", "谁")
        return NounPhrase(both.en, both.zh)
    return subject(draw, stated=not negated and question == "", asked=question != "")


def event(draw: Draw) -> Phrase:
    """Somebody does something: the bulk of the sentences."""
    verb = draw.pick(lx.PLAIN_VERBS + lx.CHOSEN_VERBS if draw.chance(0.95) else lx.CHOSEN_VERBS)
    tense = draw.pick([t for t in verb.tenses for _ in range({"p": 4, "h": 3, "f": 2, "g": 2}[t])])
    name = draw.pick(verb.objects)
    questions = {"yes": 11, "who": 5, "what": 5, "why": 3}
    if verb in lx.CHOSEN_VERBS:
        del questions["what"]  # 穿什么 or 戴什么? English does not say
    elif verb.base == "watch":
        del questions["what"]  # Chinese says 看什么 of books and of movies
    if name in NOUNS:
        questions |= {"where": 3, "when": 3} if tense == "p" else {}
        chosen = verb.base not in ("draw", "write", "make")
        questions |= {"which": 9} if chosen and NOUNS[name].shows_number else {}
        questions |= {"whose": 2} if chosen else {}
        questions |= {"how many": 3} if tense in "pf" else {}
    negated, question = mood(draw, tense, questions)
    clause = Clause(draw, someone(draw, negated, question), verb, tense, negated, question)
    if tense == "h" and not negated and clause.subject.en[0][0] != "every" and draw.chance(0.35):
        set_every(draw, clause)
    if question in ("what", "which", "whose", "how many"):
        clause.object = asked_object(draw, name, question)
    else:
        kinds = determiners(verb, tense, negated, question, counted=bool(clause.every))
        clause.object = an_object(draw, name, kinds)
    return complete(draw, clause)


def action(draw: Draw) -> Phrase:
    """Without an object, or upon a person: sleep, help him, call his mother."""
    roll = draw.rng.random()
    verbs = lx.INTRANSITIVES if roll < 0.5 else lx.PEOPLE_VERBS if roll < 0.8 else lx.TOWARDS
    verb = draw.pick(verbs)
    tense = draw.pick([t for t in verb.tenses for _ in range({"p": 4, "h": 3, "f": 2, "g": 2}[t])])
    questions = {"yes": 12, "why": 4, "who": 5}
    questions |= {"when": 4} if tense == "p" and verbs is not lx.TOWARDS else {}
    questions |= {"where": 4} if tense == "p" and verb.places and verbs is not lx.TOWARDS else {}
    negated, question = mood(draw, tense, questions)
    if verb.base in lx.ANIMAL_VERBS and question != "who" and draw.chance(0.4):
        doer = thing(
            draw, NOUNS[draw.pick(ANIMALS)], draw.pick(("the", "this", "that", "those")), living=True
        )
    else:
        doer = someone(draw, negated, question)
    clause = Clause(draw, doer, verb, tense, negated, question)
    if verbs is not lx.INTRANSITIVES:
        clause.object = other_person(draw, doer)
    if tense == "h" and not negated and doer.en[0][0] != "every" and draw.chance(0.35):
        set_every(draw, clause)
    return complete(draw, clause)


def state(draw: Draw) -> Phrase:
    """Like, want, need, have, know, love: no time and no place."""
    of_people = draw.chance(0.3)
    verb = draw.pick(lx.PEOPLE_STATES if of_people else lx.STATES)
    questions = {"yes": 16, "who": 6} | (
        {} if of_people else {"what": 4, "why": 0 if verb.base == "have" else 4}
    )
    negated, question = mood(draw, "s", questions)
    clause = Clause(draw, someone(draw, negated, question), verb, "s", negated, question)
    if clause.subject.en[0][0] == "every":
        clause.every = clause.subject.en[0][1]
    if of_people:
        clause.object = other_person(draw, clause.subject)
    elif question == "what":
        clause.object = asked_object(draw, "", "what")
    else:
        name = draw.pick(verb.objects)
        known = name in MADE and name in NOUNS and NOUNS[name].shows_number
        if known and verb.base == "like" and draw.chance(0.5):
            clause.object = described(draw, name)
        else:
            clause.object = an_object(draw, name, determiners(verb, "s", negated, question, counted=False))
    return clause.phrase()


def spot(draw: Draw, entry: tuple[str, str, str, str]) -> tuple[Phrase, Phrase]:
    """On the table, as the preposition and 'the table'; Chinese says 桌子 上."""
    preposition, noun, zh, side = entry
    name, where = draw.link(), draw.link()
    return (
        Phrase(tokens(preposition, where), tokens(side, where)),
        Phrase(tokens("the", 0) + tokens(noun, name), tokens(zh, name)),
    )


def put(draw: Draw) -> Phrase:
    """Puts the key on the table: 把 钥匙 放在 桌子 上. The object comes before the verb."""
    tense = draw.weighted({"p": 5, "h": 2, "f": 3})
    negated, question = mood(draw, tense, {"yes": 14, "who": 6, "why": 4})
    clause = Clause(
        draw, someone(draw, negated, question), lx.PUT, tense, negated, question, object_first=True
    )
    entry = draw.pick(lx.SPOTS)
    name = draw.pick([n for n in lx.SMALL_THINGS if n != entry[1]])
    clause.object = thing(draw, NOUNS[name], draw.pick(("the", "the", "this", "those")), adjectives=0.2)
    side, place_name = spot(draw, entry)
    clause.goal = Phrase(side.en + place_name.en, place_name.zh + side.zh)
    return complete(draw, clause)


def hand_over(draw: Draw) -> Phrase:
    """Gave him a book: 送给 了 他 一本书. Gave the book to him: 把 书 送给 他 了."""
    verb, tense = draw.pick(lx.HAND_OVER), draw.weighted({"p": 6, "f": 3})
    negated, question = mood(draw, tense, {"yes": 12, "who": 6, "what": 5})
    clause = Clause(draw, someone(draw, negated, question), verb, tense, negated, question)
    receiver = other_person(draw, clause.subject)
    name = draw.pick(verb.objects)
    if question == "what":
        clause.object, clause.receiver = asked_object(draw, "", "what"), receiver
    elif draw.chance(0.5):
        kinds = {"any": 1} if negated or question == "yes" else INDEFINITE
        clause.object, clause.receiver = an_object(draw, name, kinds), receiver
    else:
        clause.object, clause.object_first = (
            thing(draw, NOUNS[name], draw.pick(("the", "this", "those"))),
            True,
        )
        link = draw.link()
        clause.goal = Phrase(tokens("to", link) + receiver.en, receiver.zh)
    return complete(draw, clause)


def go(draw: Draw) -> Phrase:
    """Went to Beijing with his friend by train: 跟 他 朋友 一起 坐 火车 去 北京 了."""
    tense = draw.weighted({"p": 5, "h": 2, "f": 4})
    negated, question = mood(
        draw, tense, {"yes": 14, "who": 6, "why": 4, **({"when": 5} if tense == "p" else {})}
    )
    clause = Clause(draw, someone(draw, negated, question), lx.GO, tense, negated, question)
    link = draw.link()
    en, zh, ways = draw.pick(lx.DESTINATIONS)
    clause.goal = Phrase(tokens("to", link) + tokens(en, link), tokens(zh, link))
    if not negated and draw.chance(0.5):
        clause.transport = transport(draw, ways)
    if tense == "h" and not negated and clause.subject.en[0][0] != "every" and draw.chance(0.35):
        set_every(draw, clause)
    return complete(draw, clause)


def quality(draw: Draw, name: str, negated: bool, question: bool) -> Phrase:
    """Expensive, very expensive, too expensive: 很贵, 非常贵, 太贵了. A colour is 是黑色的."""
    adjective = ADJECTIVES[name]
    said = draw.link()
    if name in COLOURS:
        return Phrase(tokens(name, said), tokens(f"是 {adjective.zh} 的", said))
    if negated or question:
        return Phrase(tokens(name, said), tokens(adjective.zh, said))
    degree = draw.weighted({"": 4, "very": 4, "too": 3})
    before, after = {"": ("很", ""), "very": ("非常", ""), "too": ("太", "了")}[degree]
    link = draw.link() if degree else 0
    return Phrase(
        tokens(degree, link) + tokens(name, said),
        tokens(before, link) + tokens(adjective.zh, said) + tokens(after, link),
    )


def a_thing(draw: Draw, name: str) -> NounPhrase:
    """The thing `name` as something to speak about."""
    if name in MADE and draw.chance(0.3):
        return described(draw, name)
    if draw.chance(0.4):
        return thing(draw, NOUNS[name], "the", owner=owner(draw), adjectives=0.0)
    return thing(draw, NOUNS[name], draw.pick(("this", "that", "these", "those", "second")), adjectives=0.0)


def being(draw: Draw) -> Phrase:
    """Subject is adjective."""
    kind = draw.weighted({"": 6, "not": 2, "yes": 2})
    negated, question = kind == "not", kind == "yes"
    time, tense = NOTHING, "h"
    if draw.chance(0.6):
        name = draw.pick(list(SPOKEN_OF))
        subj = a_thing(draw, draw.pick(SPOKEN_OF[name]))
    else:
        subj, name = subject(draw, stated=False, asked=question), draw.pick(lx.FEELINGS + lx.TRAITS)
        if name in lx.FEELINGS and draw.chance(0.4):
            tense, time = "p", pair(draw, *draw.pick(lx.TIMES["p"]))
    return is_a(draw, subj, tense, quality(draw, name, negated, question), negated, question, time) + closing(
        draw.link(), question
    )


def comparison(draw: Draw) -> Phrase:
    """Taller than: 比 … 高. As tall as: 跟 … 一样 高. Chinese names the other one first."""
    equal, question = draw.chance(0.35), draw.chance(0.2)
    if draw.chance(0.5):
        quality_name = draw.pick([name for name in SPOKEN_OF if ADJECTIVES[name].comparative])
        noun = NOUNS[draw.pick(SPOKEN_OF[quality_name])]
        first = thing(draw, noun, draw.pick(("this", "that")), adjectives=0.0)
        second = thing(draw, noun, "the", owner=owner(draw), adjectives=0.0)
        first, second = draw.pick(((first, second), (second, first)))
    else:
        quality_name = draw.pick(lx.TRAITS)
        first = subject(draw, stated=False, asked=question)
        second = other_person(draw, first, counted=False)
    word = ADJECTIVES[quality_name]
    said, link = draw.link(), draw.link()
    if equal:
        predicate = Phrase(
            tokens("as", link) + tokens(word.en, said) + tokens("as", link) + second.en,
            tokens("跟", link) + second.zh + tokens("一样", link) + tokens(word.zh, said),
        )
    else:
        predicate = Phrase(
            tokens(word.comparative, said) + tokens("than", link) + second.en,
            tokens("比", link) + second.zh + tokens(word.zh, said),
        )
    return is_a(draw, first, "h", predicate, False, question) + closing(draw.link(), question)


def existence(draw: Draw) -> Phrase:
    """There is a cat on the table: 桌子 上 有 一只猫."""
    outdoors = draw.chance(0.5)
    entry = draw.pick(lx.OUTDOOR_SPOTS if outdoors else lx.SPOTS)
    names = lx.LIVING_THINGS if outdoors else lx.SMALL_THINGS + lx.GROUPS["pets"]
    name = draw.pick([n for n in names if n != entry[1]])
    side, where = spot(draw, entry)
    spot_zh, there, end = where.zh + side.zh, draw.link(), draw.link()
    spot_en = side.en + where.en
    kind = draw.weighted({"number": 5, "a": 5, "some": 3, "no": 4, "any": 3, "how many": 3, "what": 2})
    if kind == "what":
        asked = pair(draw, "what", "什么")
        return Phrase(
            asked.en + tokens("is", there) + spot_en, spot_zh + tokens("有", there) + asked.zh
        ) + closing(end, True)
    det = draw.pick(list(lx.NUMBERS)) if kind == "number" else kind
    what = thing(draw, NOUNS[name], det, living=name in lx.LIVING_THINGS)
    be = "are" if DETERMINERS[det].plural else "is"
    if kind == "how many":
        en = what.en + tokens(f"{be} there", there) + spot_en
        return Phrase(en, spot_zh + tokens("有", there) + what.zh) + closing(end, True)
    if kind == "any":
        en = tokens(f"{be} there", there) + what.en + spot_en
        return Phrase(en, spot_zh + tokens("有", there) + what.zh + tokens("吗", end)) + closing(end, True)
    has = tokens("没", what.en[0][1]) if kind == "no" else ()
    en = tokens(f"there {be}", there) + what.en + spot_en
    return Phrase(en, spot_zh + has + tokens("有", there) + what.zh) + closing(end, False)


def reasoned(draw: Draw) -> Phrase:
    """She did not go because she was tired: 因为她很累，所以她没去."""
    negated = draw.chance(0.6)
    feeling = draw.pick(lx.REASONS_AGAINST if negated else list(lx.REASONS))
    verbs = lx.INTRANSITIVES + lx.PLAIN_VERBS
    verb = draw.pick(verbs if negated else [v for v in verbs if v.base in lx.REASONS[feeling]])
    tense = draw.pick([t for t in verb.tenses if t in "pf"])
    while not (doer := subject(draw, stated=False)).who:
        pass
    clause = Clause(draw, doer, verb, tense, negated)
    if verb.objects:
        clause.object = an_object(draw, draw.pick(verb.objects), determiners(verb, tense, negated, "", False))
    if tense == "f":
        name = draw.pick(("will", "want to"))
        clause.modal = (name, {"will": "会", "want to": "想"}[name])
    set_time(draw, clause, needed=verb.past_is_base)
    clause.time_first = False
    again = pronoun(draw, doer.who)
    reason = is_a(
        draw, again, "p" if tense == "p" else "h", quality(draw, feeling, False, False), False, False
    )
    return because(draw, Phrase(clause.english(), clause.chinese()), reason) + closing(draw.link(), False)


KINDS = {
    event: 52,
    action: 11,
    state: 9,
    put: 4,
    hand_over: 5,
    go: 4,
    being: 6,
    comparison: 4,
    existence: 3,
    reasoned: 2,
}


def sentence(rng: random.Random) -> Sentence:
    """One random sentence of at most `LONGEST` tokens a side."""
    while True:
        draw = Draw(rng)
        kind = draw.weighted(KINDS)
        phrase = kind(draw)
        if max(len(phrase.en), len(phrase.zh)) <= LONGEST:
            break
    links = {}
    for j, (_, link) in enumerate(phrase.zh):
        links.setdefault(link, []).append(j)
    links.pop(0, None)
    alignment = tuple((i, j) for i, (_, link) in enumerate(phrase.en) for j in links.get(link, ()))
    return Sentence(tuple(w for w, _ in phrase.en), tuple(w for w, _ in phrase.zh), alignment, kind.__name__)
