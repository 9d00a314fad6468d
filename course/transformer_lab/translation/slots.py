"""What may fill the slots of a clause: who, what, when, where and how, drawn so that sentences make sense."""

from __future__ import annotations

from . import lexicon as lx
from .clauses import Clause
from .lexicon import MASS, NOUNS, Verb
from .phrases import (
    NOTHING,
    Draw,
    NounPhrase,
    Phrase,
    companion,
    everyone,
    manner,
    named,
    owner,
    pair,
    people,
    person,
    place,
    pronoun,
    relative,
    substance,
    thing,
    tokens,
    two_people,
)

COUNTED = ("a", *lx.NUMBERS)
MADE = {name for verb in lx.PLAIN_VERBS for name in verb.objects if "p" in verb.tenses}


# ------------------------------------------------------------------------------------------- who
def subject(draw: Draw, stated: bool = True, asked: bool = False) -> NounPhrase:
    """Who does it. Indefinite subjects and "every" only where something is stated; nobody asks about "I"."""
    kinds = {"pronoun": 30, "name": 12, "the": 10, "these": 8, "relative": 18, "people": 6, "both": 3}
    if stated:
        kinds |= {"a": 5, "every": 4}
    kind = draw.weighted(kinds)
    makers = {"name": named, "relative": relative, "people": people, "every": everyone}
    if kind in makers:
        return makers[kind](draw)
    if kind == "pronoun":
        return pronoun(draw, draw.pick([name for name in lx.PRONOUNS if not (asked and name == "i")]))
    if kind == "both":
        return two_people(draw)
    options = {"the": ("the",), "these": ("this", "that", "these", "those"), "a": COUNTED}
    return person(draw, draw.pick(options[kind]))


def other_person(draw: Draw, first: NounPhrase, counted: bool = True) -> NounPhrase:
    """Whom it is done to: never `first` once more."""
    me = ("i", "we")
    kinds = {"pronoun": 25, "name": 20, "relative": 35, "these": 12} | ({"a": 8} if counted else {})
    while True:
        kind = draw.weighted(kinds)
        if kind == "pronoun":
            other = pronoun(draw, draw.pick(list(lx.PRONOUNS)), "object")
            if other.who != first.who and not (other.who in me and first.who in me):
                return other
            continue
        if kind == "name":
            other = named(draw)
        elif kind == "relative":
            other = relative(draw)
        else:
            other = person(draw, draw.pick(("this", "that") if kind == "these" else ("a", "two", "three")))
        if other.head != first.head:
            return other


# ------------------------------------------------------------------------------------------- what
DEFINITE = {"this": 10, "that": 10, "these": 5, "those": 5, "own": 24, "ordinal": 5}
INDEFINITE = {"a": 26, "number": 18, "some": 12}


def determiners(verb: Verb, tense: str, negated: bool, question: str, counted: bool) -> dict[str, float]:
    """Which determiners the object of such a clause may have, with their weights."""
    open_question = negated or question == "yes"
    if question in ("where", "when"):
        return DEFINITE
    if verb.base == "have":
        return {"any": 1} if open_question else INDEFINITE
    if verb.base == "like" or tense in "hg":
        kinds = DEFINITE | {"plural": 40}
        if counted:
            return kinds | {"a": 24, "number": 12}
        return kinds | {"a": 24} if tense == "g" and not negated else kinds
    if open_question:
        return DEFINITE | {"any": 40}
    return DEFINITE | INDEFINITE


def an_object(draw: Draw, name: str, kinds: dict[str, float]) -> NounPhrase:
    """The noun or substance `name` with a determiner drawn from `kinds`."""
    if name in MASS:
        usable = {kind: w for kind, w in kinds.items() if kind not in DEFINITE}
        kind = draw.weighted(usable) if usable and MASS[name].containers else "plural"
    else:
        kind = draw.weighted(kinds)
    if kind == "own":
        det = draw.weighted({"the": 5, "two": 1, "three": 1})
        return thing(draw, NOUNS[name], det, owner=owner(draw), adjectives=0.15)
    kind = {"number": draw.pick(list(lx.NUMBERS)), "ordinal": draw.pick(list(lx.ORDINALS))}.get(kind, kind)
    if name in MASS:
        return substance(draw, MASS[name], kind)
    return thing(draw, NOUNS[name], kind)


def asked_object(draw: Draw, name: str, kind: str) -> NounPhrase:
    """What, whose book, which books, how many books, in the place of an object."""
    if kind == "what":
        both = pair(draw, "what", "什么")
        return NounPhrase(both.en, both.zh)
    if kind == "which":
        kind = draw.pick(("which", "which of many"))
    return thing(draw, NOUNS[name], kind, adjectives=0.1)


def described(draw: Draw, name: str) -> NounPhrase:
    """The book that my friend bought yesterday: 我朋友昨天买的那本书."""
    makers = [verb for verb in lx.PLAIN_VERBS if name in verb.objects and "p" in verb.tenses]
    verb, who = draw.pick(makers), subject(draw, stated=False)
    when = NOTHING
    if verb.past_is_base or draw.chance(0.4):
        when = pair(draw, *draw.pick(lx.TIMES["p"]))
    noun = thing(draw, NOUNS[name], draw.pick(("that", "those")), adjectives=0.1)
    the, that, did = noun.en[0][1], draw.link(), draw.link()
    en = tokens("the", the) + noun.en[1:] + tokens("that", that) + who.en + tokens(verb.past, did) + when.en
    zh = who.zh + when.zh + tokens(verb.zh, did) + tokens("的", that) + noun.zh
    return NounPhrase(en, zh, noun.agreement, head=name)


# ------------------------------------------------------------------------------------------- when, where, how
def set_time(draw: Draw, clause: Clause, needed: bool = False) -> None:
    """Gives the clause a time phrase and perhaps a word of frequency, as its tense allows."""
    tense, stated = clause.tense, not clause.negated and clause.question in ("", "who")
    if tense == "g":
        if clause.negated or draw.chance(0.4):
            clause.time = pair(draw, *draw.pick(lx.TIMES["g"]))
        return
    if tense == "h":
        if (clause.frequency.en or clause.negated) and draw.chance(0.35):
            clause.time = pair(draw, *draw.pick(lx.TIMES["h"]))
    elif needed or draw.chance(0.6):
        clause.time = pair(draw, *draw.pick(lx.TIMES[tense]))
    clause.time_first = bool(clause.time.en) and stated and clause.question == "" and draw.chance(0.3)


def set_every(draw: Draw, clause: Clause) -> None:
    """Every day: Chinese adds 都 before the verb, far from 每天."""
    every, rest = draw.link(), draw.link()
    en, zh = draw.pick(lx.TIMES["every"])
    clause.time = Phrase(tokens("every", every) + tokens(en.split()[1], rest), tokens(zh, rest))
    clause.every = every
    clause.time_first = clause.question == "" and draw.chance(0.2)


def set_surroundings(draw: Draw, clause: Clause) -> None:
    """Place, company and manner; a negated clause keeps only the place, or it would deny the wrong thing."""
    verb = clause.verb
    places = [entry for group in verb.places for entry in lx.PLACES[group]]
    if places and clause.question != "where" and draw.chance(0.4):
        clause.place = place(draw, draw.pick(places))
    if clause.negated or clause.question in ("where", "when", "why"):
        return
    bare = clause.object is None or clause.object.bare
    if verb.manners and not (clause.tense == "p" and bare) and draw.chance(0.25):  # 高兴地跳舞了 sounds wrong
        clause.manner = manner(draw, draw.pick(verb.manners))
        return
    elsewhere = clause.receiver or clause.verb in lx.TOWARDS or (clause.goal.en and clause.verb is not lx.GO)
    if clause.subject.who and not clause.question and not elsewhere and draw.chance(0.08):
        clause.companion = companion(draw, relative(draw))


def complete(draw: Draw, clause: Clause) -> Phrase:
    """Adverbials and modal, then both languages."""
    if clause.tense == "f":
        modals = dict(lx.MODALS) | {"want to": "想"}
        if clause.negated or clause.inverted:
            del modals["must"]
        weights = {"will": 8, "can": 2, "should": 2, "must": 2, "want to": 3}
        name = draw.weighted({modal: weights[modal] for modal in modals})
        clause.modal = (name, modals[name])
    everyone_does = clause.subject.en[:1] and clause.subject.en[0][0] == "every"
    if everyone_does:
        clause.every = clause.subject.en[0][1]
    elif clause.tense == "h" and not clause.negated and not clause.every and draw.chance(0.3):
        words = [word for word in lx.FREQUENCY if word != "never" or clause.question == ""]
        word = draw.pick(words)
        clause.frequency = pair(draw, word, lx.FREQUENCY[word])
    if not clause.time.en and clause.question != "when":
        set_time(draw, clause, needed=clause.tense == "p" and clause.verb.past_is_base)
    set_surroundings(draw, clause)
    return clause.phrase()
