"""How much of what is learned, or decides, can come from one caller of an endpoint; and what is nearly one text.

A captured request does not say who sent it, so two things stand for its source: the hour in which it came, and the kind
of text that it is. Of each, no more than a share is taken, by chance; which part chance takes follows from all texts
together, which no single caller knows. It does not see a caller who takes his time and writes each text differently.
Conversations of a file of the user's own are taken whole.

Questions that are nearly one text stand on one side of the split into training and held-out data: else the head would
be measured on what it has learned.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from zlib import crc32

from toolkit.recipe.content import digest
from toolkit.training.conversations import Conversation, rank

KIND, HOUR = 0.1, 0.25
"""The most that requests of nearly one text, and those of one hour, may be of all that are taken.

Where there are too few kinds or hours for that, each may be twice its even part.
"""

_ALIKE, _COPIED = 0.6, 0.8
"""Two texts are of one kind if that share of the words that either has is in both, all digits being the same; they are
nearly one if the second share is, digits included.
"""

_MOST_WORDS = 64
"""Of a longer text's different words that many are compared, always those that have the lowest checksums."""

_MOST_COMPARED = 100
"""With how many others a text is compared, those with its rarest words first: so no text takes long."""

# Writing without spaces is compared character by character.
_WORD = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u2e80-\U0003ffff]|[^\W\u0e00-\u0eff\u1780-\u17ff\u2e80-\U0003ffff]+")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Mark:
    """What is compared of a conversation, without its text. `aside` says that it is held out.

    `words` are checksums; None: a conversation of a file of the user's own, which is compared with nothing.
    """

    aside: bool
    digest: str = ""
    hour: str = ""
    words: Sequence[int] | None = None


@dataclass(frozen=True)
class Taken:
    """Which are taken, by their numbers and as if shuffled, and why others are not."""

    numbers: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Cap:
    """The most of each source, `sources[n]` being that of the n-th conversation; None: it counts for none."""

    share: float
    sources: Sequence[Hashable]
    reason: str

    def most(self, size: int) -> int:
        """Of so many in all."""
        different = len(set(self.sources) - {None})
        return max(1, int(max(self.share, 2 / max(1, different)) * size))


@dataclass(frozen=True)
class Split:
    """Which questions are held out: about `share` of them, by chance. `firsts` has those that are nearly another one.

    Of these the first in the data decides for all, so that data which is added behind moves no question.
    """

    share: float
    seed: int
    firsts: Mapping[str, str]

    def of(self, question: str) -> str:
        """What stands for the question in the split: itself, or the first one that it is nearly."""
        return self.firsts.get(question, question)

    def is_aside(self, question: str) -> bool:
        """Whether it is held out, in data with enough other questions."""
        return rank(self.of(question), self.seed) < self.share


def split(conversations: Iterable[Conversation], share: float, seed: int) -> Split:
    """The split of these, in the order of the data.

    What more than a tenth of all questions nearly are is the form that they have, and tells none apart.
    """
    texts: dict[str, Sequence[int]] = {}
    for one in conversations:
        if (question := one.question) not in texts:
            texts[question] = _words(one.first.casefold())
    questions, kinds = list(texts), _kinds(list(texts.values()), _COPIED)
    count = Counter(kinds)
    most = max(2.0, KIND * len(questions))
    first_of: dict[int | None, str] = {}
    firsts: dict[str, str] = {}
    for question, kind in zip(questions, kinds, strict=True):
        first = first_of.setdefault(kind, question)
        if first != question and count[kind] <= most:
            firsts[question] = first
    return Split(share, seed, firsts)


def mark_of(one: Conversation, split: Split) -> Mark:
    """What is compared of it."""
    aside = split.is_aside(one.question)
    if not one.given:
        return Mark(aside)
    text = " ".join(message["content"] for message in one.messages if message["role"] == "user")
    return Mark(aside, one.digest, one.hour, _words(_DIGITS.sub("0", text.casefold())))


def _words(text: str) -> Sequence[int]:
    words = {crc32(word.encode()) for word in _WORD.findall(text)} or {0}
    return array("I", sorted(words)[:_MOST_WORDS])


def within_shares(marks: Sequence[Mark]) -> Taken:
    """All that go together: neither what is learned nor what is held out has more of a source than its share."""
    numbers: list[int] = []
    left_out: list[tuple[int, str]] = []
    for aside in (True, False):
        side = [number for number, mark in enumerate(marks) if mark.aside == aside]
        taken = take([marks[number] for number in side])
        numbers += (side[number] for number in taken.numbers)
        left_out += ((side[number], reason) for number, reason in taken.left_out)
    return Taken(tuple(sorted(numbers)), tuple(sorted(left_out)))


def mixed(sources: Sequence[int], shares: Sequence[float | None], ranks: Sequence[float]) -> set[int]:
    """The numbers of those that stay, so that each source has its share of them; one without a share stays whole.

    `sources` has each one's source, an index of `shares`. Of a source those of the lowest `ranks` stay. Where all have
    a share, the scarcest decides how many there are in all; a source that is too small for its share stays whole.
    """
    count = Counter(sources)
    wanted = {source: share for source, share in enumerate(shares) if share is not None}
    whole = sum(number for source, number in count.items() if source not in wanted)
    if whole:
        total = whole / (1 - sum(wanted.values()))
    else:
        total = min(count[source] / share for source, share in wanted.items())
    most = {source: max(1, round(share * total)) for source, share in wanted.items()}
    kept: Counter[int] = Counter()
    stay = set[int]()
    for number in sorted(range(len(sources)), key=ranks.__getitem__):
        source = sources[number]
        if kept[source] < most.get(source, count[source]):
            kept[source] += 1
            stay.add(number)
    return stay


def take(marks: Sequence[Mark], most: int | None = None) -> Taken:
    """As many as go together, and no more than `most`: no source has more than its share of what is taken."""
    salt = digest(sorted(mark.digest for mark in marks))
    order = sorted(range(len(marks)), key=lambda number: digest([salt, marks[number].digest or number]))
    caps = (
        _Cap(KIND, _kinds([mark.words for mark in marks]), "captured requests of nearly one text, beyond their share"),
        _Cap(HOUR, [mark.hour or None for mark in marks], "captured requests of one hour, beyond its share"),
    )
    size = len(order) if most is None else min(most, len(order))
    while True:  # what is left out makes the whole smaller, of which a share is taken
        taken = _take(order, caps, size, most)
        if len(taken.numbers) >= size:
            return taken
        size = len(taken.numbers)


def _take(order: Sequence[int], caps: Sequence[_Cap], size: int, most: int | None) -> Taken:
    limits = [(cap.most(size), cap.sources, cap.reason, Counter[Hashable]()) for cap in caps]
    numbers: list[int] = []
    left_out: list[tuple[int, str]] = []
    for number in order:
        if len(numbers) == most:
            break
        full = (reason for limit, sources, reason, count in limits if count[sources[number]] >= limit)
        if reason := next(full, ""):
            left_out.append((number, reason))
            continue
        numbers.append(number)
        for _, sources, _, count in limits:
            if (source := sources[number]) is not None:
                count[source] += 1
    return Taken(tuple(numbers), tuple(left_out))


def _kinds(texts: Sequence[Sequence[int] | None], alike: float = _ALIKE) -> list[int | None]:
    """Numbers of kinds: of each text and the first one of its kind, that share of words is in both.

    Two texts that are nearly one share at least one of their rarest words (prefix filtering: Chaudhuri and others,
    2006), so only those that do are compared.
    """
    seen = Counter(word for words in texts for word in words or ())
    firsts: list[frozenset[int]] = []
    with_word: dict[int, list[int]] = defaultdict(list)
    kinds: list[int | None] = []
    for words in texts:
        if words is None:
            kinds.append(None)
            continue
        rare = sorted(words, key=lambda word: (seen[word], word))[: len(words) - math.ceil(alike * len(words)) + 1]
        text, near = frozenset(words), chain.from_iterable(with_word.get(word, ()) for word in rare)
        kind = next(
            (number for number in islice(near, _MOST_COMPARED) if _alike(text, firsts[number], alike)), len(firsts)
        )
        if kind == len(firsts):
            firsts.append(text)
            for word in rare:
                with_word[word].append(kind)
        kinds.append(kind)
    return kinds


def _alike(one: frozenset[int], other: frozenset[int], share: float) -> bool:
    both = len(one & other)
    return both >= share * (len(one) + len(other) - both)
