"""Phrases in two languages at once.

A phrase holds its English tokens and its Chinese tokens. Every token carries a link, an integer: an
English and a Chinese token with the same link translate each other, and link 0 means "no counterpart".
So the true word alignment comes for free when the phrases are put in each language's own order.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from .lexicon import (
    ADJECTIVES,
    COLOURS,
    CONTAINERS,
    MANNERS,
    NAMES,
    NUMBERS,
    OLD_OF_LIVING,
    ORDINALS,
    PEOPLE,
    PRONOUNS,
    RELATIVES,
    SIZES,
    TRANSPORT,
    Mass,
    Noun,
)

Token = tuple[str, int]  # word, link
Tokens = tuple[Token, ...]
T = TypeVar("T")


def tokens(text: str, link: int) -> Tokens:
    """The words of `text`, all with the same link."""
    return tuple((word, link) for word in text.split())


class Draw:
    """A random generator that also hands out links; one sentence uses one `Draw`."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.last_link = 0

    def link(self) -> int:
        self.last_link += 1
        return self.last_link

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def weighted(self, weights: dict[T, float]) -> T:
        return self.rng.choices(list(weights), list(weights.values()))[0]


@dataclass(frozen=True)
class Phrase:
    en: Tokens = ()
    zh: Tokens = ()

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.en + other.en, self.zh + other.zh)


NOTHING = Phrase()


@dataclass(frozen=True)
class NounPhrase(Phrase):
    agreement: str = "s"  # "I", "s" singular or "p" plural: what the English verb agrees with
    bare: bool = False  # Chinese has neither number nor determiner before the noun: 了 then goes last
    who: str = ""  # the pronoun that may stand for it later
    head: str = ""  # its noun, name or pronoun, to keep a sentence from naming one thing twice


def pair(draw: Draw, en: str, zh: str) -> Phrase:
    """A phrase whose English and Chinese words all belong together."""
    link = draw.link()
    return Phrase(tokens(en, link), tokens(zh, link))


# ------------------------------------------------------------------------------------------- nouns
@dataclass(frozen=True)
class Determiner:
    en: str
    zh: str
    plural: bool
    measured: bool  # Chinese puts the noun's measure word after it

    @property
    def bare(self) -> bool:
        return not self.zh


DETERMINERS = {
    "a": Determiner("a", "一", False, True),
    "this": Determiner("this", "这", False, True),
    "that": Determiner("that", "那", False, True),
    "these": Determiner("these", "这些", True, False),
    "those": Determiner("those", "那些", True, False),
    "some": Determiner("some", "一些", True, False),
    "any": Determiner("any", "", True, False),
    "no": Determiner("no", "", True, False),
    "the": Determiner("the", "", False, False),
    "plural": Determiner("", "", True, False),
    "which": Determiner("which", "哪", False, True),
    "which of many": Determiner("which", "哪些", True, False),
    "how many": Determiner("how many", "几", True, True),
    "whose": Determiner("whose", "谁 的", False, False),
    **{en: Determiner(en, zh, True, True) for en, zh in NUMBERS.items()},
    **{en: Determiner(f"the {en}", zh, False, True) for en, zh in ORDINALS.items()},
}


def _article(following: Tokens) -> str:
    return "an" if following[0][0][0] in "aeiou" else "a"


def adjective_tokens(draw: Draw, names: Sequence[str], living: bool) -> Phrase:
    """Adjectives before a noun: some take 的 in Chinese, and `old` depends on what is old."""
    phrase = NOTHING
    for name in names:
        before = OLD_OF_LIVING if name == "old" and living else ADJECTIVES[name].before
        phrase += pair(draw, name, before.replace("+", " 的"))
    return phrase


def choose_adjectives(draw: Draw, noun: Noun, p: float) -> tuple[str, ...]:
    """None, one, or a size and a colour (in this order in both languages)."""
    if not noun.adjectives or not draw.chance(p):
        return ()
    first = draw.pick(noun.adjectives)
    colours = [name for name in noun.adjectives if name in COLOURS]
    if first in SIZES and colours and draw.chance(0.4):
        return first, draw.pick(colours)
    return (first,)


def thing(
    draw: Draw,
    noun: Noun,
    determiner: str,
    *,
    owner: NounPhrase | None = None,
    adjectives: float = 0.25,
    living: bool = False,
) -> NounPhrase:
    """A noun with its determiner; with an `owner` the determiner may be "the" or a number."""
    head, det = draw.link(), DETERMINERS[determiner]
    described = adjective_tokens(draw, choose_adjectives(draw, noun, adjectives), living)
    noun_en = described.en + tokens(noun.plural if det.plural else noun.singular, head)
    noun_zh = described.zh + tokens(noun.zh, head)
    link = draw.link()
    det_en = "" if owner and determiner == "the" else det.en
    if determiner == "a":
        det_en = _article(noun_en)
    measure = tokens(noun.measure, head) if det.measured else ()
    en = tokens(det_en, link) + noun_en
    zh = tokens(det.zh, link) + measure + noun_zh
    if owner:
        en, zh = owner.en + en, owner.zh + zh
    return NounPhrase(en, zh, "p" if det.plural else "s", det.bare and not owner, head=noun.singular)


def substance(draw: Draw, mass: Mass, determiner: str) -> NounPhrase:
    """Milk, some milk, any milk, a glass of milk, two glasses of milk."""
    content, link = pair(draw, mass.en, mass.zh), draw.link()
    det = DETERMINERS[determiner]
    if not det.measured:
        return NounPhrase(
            tokens(det.en, link) + content.en, tokens(det.zh, link) + content.zh, "s", det.bare, head=mass.en
        )
    one, many, measure = CONTAINERS[draw.pick(mass.containers)]
    container = draw.link()
    name = tokens(many if det.plural else one, container)
    en = tokens(_article(name) if determiner == "a" else det.en, link) + name + tokens("of", container)
    zh = tokens(det.zh, link) + tokens(measure, container)
    return NounPhrase(en + content.en, zh + content.zh, head=mass.en)


# ------------------------------------------------------------------------------------------- people
def pronoun(draw: Draw, name: str, form: str = "subject") -> NounPhrase:
    subject, obj, _, zh, agreement = PRONOUNS[name]
    both = pair(draw, subject if form == "subject" else obj, zh)
    return NounPhrase(both.en, both.zh, agreement, who=name, head=name)


def named(draw: Draw) -> NounPhrase:
    name = draw.pick(list(NAMES))
    zh, who = NAMES[name]
    both = pair(draw, name, zh)
    return NounPhrase(both.en, both.zh, who=who, head=name)


def owner(draw: Draw, who: str = "") -> NounPhrase:
    """Whose: my, her, Tom's, the teacher's; with `who` that pronoun's. The Chinese ends in 的."""
    link = draw.link()
    roll = draw.rng.random()
    if who or roll < 0.6:
        name = who or draw.pick(list(PRONOUNS))
        _, _, possessive, zh, _ = PRONOUNS[name]
        return NounPhrase(tokens(possessive, link), tokens(f"{zh} 的", link), who=name)
    if roll < 0.8:
        holder = named(draw)
    else:
        noun = PEOPLE[draw.pick(list(PEOPLE))]
        holder = thing(draw, noun, "the", adjectives=0.0)
    return NounPhrase((*holder.en, ("'s", link)), (*holder.zh, ("的", link)), head=holder.head)


def he_or_she(draw: Draw) -> str:
    return draw.pick(("he", "she"))


def relative(draw: Draw, of: str = "") -> NounPhrase:
    """My mother, Tom's friend. Chinese drops 的 between a pronoun and somebody close: 我 妈妈."""
    english, zh, who = RELATIVES[draw.pick(list(RELATIVES))]
    holder, both = owner(draw, of), pair(draw, english, zh)
    owner_zh = holder.zh[:-1] if holder.who else holder.zh
    who = he_or_she(draw) if who == "-" else who
    return NounPhrase(holder.en + both.en, owner_zh + both.zh, who=who, head=english)


def person(draw: Draw, determiner: str, adjectives: float = 0.2) -> NounPhrase:
    """A doctor, the young doctor, these two students."""
    noun = PEOPLE[draw.pick(list(PEOPLE))]
    phrase = thing(draw, noun, determiner, adjectives=adjectives, living=True)
    settled = {"boy": "he", "girl": "she"}
    who = "they" if phrase.agreement == "p" else settled.get(noun.singular) or he_or_she(draw)
    return NounPhrase(phrase.en, phrase.zh, phrase.agreement, phrase.bare, who, noun.singular)


def people(draw: Draw) -> NounPhrase:
    """The doctors: Chinese says 医生 们, and only of people."""
    noun = PEOPLE[draw.pick(list(PEOPLE))]
    the, head = draw.link(), draw.link()
    en = tokens("the", the) + tokens(noun.plural, head)
    return NounPhrase(en, tokens(noun.zh, head) + tokens("们", the), "p", who="they", head=noun.singular)


def everyone(draw: Draw) -> NounPhrase:
    """Every doctor: 每 位 医生, and 都 must follow before the verb."""
    noun = PEOPLE[draw.pick(list(PEOPLE))]
    every, head = draw.link(), draw.link()
    zh = tokens("每", every) + tokens(f"{noun.measure} {noun.zh}", head)
    return NounPhrase(tokens("every", every) + tokens(noun.singular, head), zh, head=noun.singular)


def two_people(draw: Draw) -> NounPhrase:
    """Tom and his mother."""
    first = named(draw)
    join, second = pair(draw, "and", "和"), relative(draw, first.who)
    return NounPhrase(
        first.en + join.en + second.en, first.zh + join.zh + second.zh, "p", who="they", head=first.head
    )


# ------------------------------------------------------------------------------------------- adverbials
def place(draw: Draw, entry: tuple[str, str]) -> Phrase:
    """In the park: 在 公园 (the first English word pairs with 在)."""
    en, zh = entry
    preposition, name = draw.link(), draw.link()
    words = en.split()
    return Phrase(
        tokens(words[0], preposition) + tokens(" ".join(words[1:]), name),
        tokens("在", preposition) + tokens(zh, name),
    )


def manner(draw: Draw, name: str) -> Phrase:
    zh, with_de = MANNERS[name]
    return pair(draw, name, f"{zh} 地" if with_de else zh)


def companion(draw: Draw, who: NounPhrase) -> Phrase:
    """With her friend: 跟 她 朋友 一起."""
    link = draw.link()
    return Phrase(tokens("with", link) + who.en, tokens("跟", link) + who.zh + tokens("一起", link))


def transport(draw: Draw, ways: Sequence[str]) -> Phrase:
    return pair(draw, *TRANSPORT[draw.pick(ways)])
