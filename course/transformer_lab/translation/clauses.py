"""A clause is its content in slots; each language puts the slots in its own order.

English   [time] subject do not often VERB object place time
Chinese   [time] subject time why 都 often not 在-place with-whom manner [把 object] VERB 了 object 吗
"""

from dataclasses import dataclass

from .lexicon import Verb
from .phrases import NOTHING, Draw, NounPhrase, Phrase, Tokens, pair, tokens

BE = {"h": {"I": "am", "s": "is", "p": "are"}, "p": {"I": "was", "s": "was", "p": "were"}}
# Which slot the question word fills; "yes" is a yes-no question.
OBJECT_QUESTIONS = ("what", "whose", "which", "how many")


@dataclass
class Clause:
    draw: Draw
    subject: NounPhrase
    verb: Verb
    tense: str  # h habitual, p past, f with a modal, g in progress, s a state
    negated: bool = False
    question: str = ""  # "", "yes", "who" (the subject), "what" (the object), "where", "when", "why"
    modal: tuple[str, str] = ("", "")  # ("will", "会")
    object: NounPhrase | None = None
    receiver: NounPhrase | None = None  # gave *him* a book
    goal: Phrase = Phrase()  # put the book *on the table*, went *to the park*
    object_first: bool = False  # Chinese: 把 object before the verb
    place: Phrase = NOTHING
    companion: Phrase = NOTHING
    transport: Phrase = NOTHING
    manner: Phrase = NOTHING
    time: Phrase = NOTHING
    frequency: Phrase = NOTHING
    time_first: bool = False
    every: int = 0  # the link of "every", which 都 translates

    def __post_init__(self):
        draw = self.draw
        self.verb_link, self.not_link, self.do_link = draw.link(), draw.link(), draw.link()
        self.modal_link, self.wh_link, self.ba_link, self.end_link = (draw.link() for _ in range(4))

    @property
    def inverted(self) -> bool:
        return self.question not in ("", "who")

    # --------------------------------------------------------------------------------------- English
    def _verb_group(self) -> tuple[Tokens, Tokens]:
        """The word that changes places with the subject in a question (may be none), and the rest."""
        verb, agreement = self.verb, self.subject.agreement
        lexical = tokens(verb.base, self.verb_link)
        if self.tense == "g":
            return tokens(BE["h"][agreement], self.do_link), tokens(verb.ing, self.verb_link)
        if self.tense == "f" and self.modal[0] != "want to":
            return tokens(self.modal[0], self.modal_link), lexical
        if self.tense == "f":
            lexical = tokens("to", self.modal_link) + lexical
        with_do = self.negated or self.inverted
        if self.tense == "p":
            return (
                (tokens("did", self.do_link), lexical) if with_do else ((), tokens(verb.past, self.verb_link))
            )
        third = agreement == "s"
        if self.tense == "f":
            want = tokens("wants" if third and not with_do else "want", self.modal_link)
            lexical = want + lexical
        elif third and not with_do:
            lexical = tokens(verb.third, self.verb_link)
        return (tokens("does" if third else "do", self.do_link) if with_do else (), lexical)

    def english(self) -> Tokens:
        """Without the closing mark."""
        moving, rest = self._verb_group()
        object_en = self.object.en if self.object else ()
        receiver = self.receiver.en if self.receiver else ()
        negation = tokens("not", self.not_link) if self.negated else ()
        front = self.time.en if self.time_first else ()
        if self.question in OBJECT_QUESTIONS:
            front, object_en = object_en, ()
        elif self.question in ("where", "when", "why"):
            front = tokens(self.question, self.wh_link)
        subject = moving + self.subject.en if self.inverted else self.subject.en + moving
        time = () if self.time_first else self.time.en
        adverbials = self.manner.en + self.companion.en + self.transport.en + self.place.en
        return (
            front
            + subject
            + negation
            + self.frequency.en
            + rest
            + receiver
            + object_en
            + self.goal.en
            + adverbials
            + time
        )

    # --------------------------------------------------------------------------------------- Chinese
    def _negation(self) -> Tokens:
        if not self.negated:
            return ()
        if self.tense == "g":  # 没 在 看书
            place = tokens("没", self.not_link)
            return place if self.place.zh else place + tokens("在", self.do_link)
        did_or_has = self.tense == "p" or self.verb.zh == "有"
        return tokens("没" if did_or_has else "不", self.not_link)

    def _before_verb(self) -> Tokens:
        """What stands between the subject and the verb."""
        asks_past = self.tense == "p" and self.question in ("where", "when")
        is_ = tokens("是", self.do_link) if asks_past else ()  # 是 在哪里 买 的: asks about one detail
        when = is_ + tokens("什么时候", self.wh_link) if self.question == "when" else ()
        where = is_ + tokens("在 哪里", self.wh_link) if self.question == "where" else ()
        why = tokens("为什么", self.wh_link) if self.question == "why" else ()
        all_ = tokens("都", self.every) if self.every else ()
        place = self.place.zh
        progress = ()
        if self.tense == "g" and not self.negated:
            progress = tokens("正在", self.do_link)
            place = place[1:]  # 正在 holds the 在 of the place
        time = () if self.time_first else self.time.zh
        return (
            time
            + when
            + why
            + all_
            + self.frequency.zh
            + self._negation()
            + tokens(self.modal[1], self.modal_link)
            + progress
            + where
            + place
            + self.companion.zh
            + self.transport.zh
            + self.manner.zh
        )

    def chinese(self) -> Tokens:
        """Without the closing mark, but with 吗."""
        done = tokens("了", self.do_link if self.inverted else self.verb_link)
        done = done if self.tense == "p" and not self.negated else ()
        before, after, last = (), (), ()
        object_zh = self.object.zh if self.object else ()
        verb_zh = self.verb.zh
        if "-" in verb_zh:  # 给 她 打电话
            preposition, verb_zh = verb_zh.split("-")
            before, object_zh = tokens(preposition, self.verb_link) + object_zh, ()
        elif self.object_first:
            before, object_zh = tokens("把", self.ba_link) + object_zh, ()
        if self.receiver:
            object_zh = self.receiver.zh + object_zh
        object_zh += self.goal.zh
        quantified = self.receiver or (self.object and not self.object.bare)
        if done and self.question in ("where", "when"):
            after = tokens("的", self.do_link)
        elif done and quantified and not before:
            after = done
        else:
            last = done
        ask = tokens("吗", self.end_link) if self.question == "yes" else ()
        front = self.time.zh if self.time_first else ()
        return (
            front
            + self.subject.zh
            + self._before_verb()
            + before
            + tokens(verb_zh, self.verb_link)
            + after
            + object_zh
            + last
            + ask
        )

    def phrase(self) -> Phrase:
        """The whole sentence with its closing mark."""
        return Phrase(self.english(), self.chinese()) + closing(self.end_link, bool(self.question))


def closing(link: int, question: bool) -> Phrase:
    return (
        Phrase(tokens("?", link), tokens("？", link))
        if question
        else Phrase(tokens(".", link), tokens("。", link))
    )


def because(draw: Draw, result: Phrase, reason: Phrase) -> Phrase:
    """English gives the reason last, Chinese first: 因为 …，所以 …"""
    link = draw.link()
    return Phrase(
        result.en + tokens("because", link) + reason.en,
        tokens("因为", link) + reason.zh + tokens("，", 0) + tokens("所以", link) + result.zh,
    )


def is_a(
    draw: Draw,
    subject: NounPhrase,
    tense: str,
    predicate: Phrase,
    negated: bool,
    question: bool,
    time: Phrase = NOTHING,
) -> Phrase:
    """Subject is (not) predicate; the predicate brings its own Chinese 很 or 是."""
    be = tokens(BE[tense][subject.agreement], draw.link())
    negation = pair(draw, "not", "不") if negated else NOTHING
    ask = draw.link()
    head = be + subject.en if question else subject.en + be
    return Phrase(
        head + negation.en + predicate.en + time.en,
        subject.zh + time.zh + negation.zh + predicate.zh + (tokens("吗", ask) if question else ()),
    )
