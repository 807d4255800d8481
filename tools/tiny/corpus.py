"""Synthetic chat texts, made from a seed.

Structured answers follow from their prompt, which speculation is good at: records, tables, code, configuration. In the
open-ended ones every word leads to one of a few others, all equally likely: the corpus takes any, and the target always
the one that it likes best, which a head can only know from the target's own answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from tools.tiny.words import ADJECTIVES, ADVERBS, NAMES, NOUNS, PLACES, VERBS

OPEN_ENDED_SHARE = 0.3
SHORT_SHARE = 0.7
HELD_OUT = 8
CANDIDATES = 16
NUMBER_LIMIT = 400
FOLLOWERS = 3


@dataclass(frozen=True)
class Example:
    """One question and the answer that the target shall learn to give."""

    prompt: str
    answer: str


def examples(seed: int, count: int) -> Iterator[Example]:
    """Training texts for `seed`; no prompt of `held_out_structured` or `held_out_open_ended` is among them."""
    rng = Random(seed)  # noqa: S311 (texts, not secrets)
    held_out = {example.prompt for example in (*held_out_structured(), *held_out_open_ended())}
    made = 0
    while made < count:
        kinds = OPEN_ENDED if rng.random() < OPEN_ENDED_SHARE else STRUCTURED
        example = rng.choice(kinds)(rng)
        if example.prompt not in held_out:
            made += 1
            yield example


def is_open_ended(example: Example) -> bool:
    """Whether one of many answers is right."""
    return example.prompt.startswith(("Tell me a story", "Write a letter", "Describe", "What do you think"))


def held_out_structured() -> list[Example]:
    """One prompt of every structured kind, for measuring; its answer is known, and long."""
    rng = Random(2602_01469)  # noqa: S311
    return [
        max((kind(rng) for _ in range(CANDIDATES)), key=lambda example: example.answer.count("\n"))
        for kind in STRUCTURED
    ]


def held_out_open_ended() -> list[Example]:
    """Eight open-ended prompts, for measuring; their answers are one of many."""
    rng = Random(2503_01840)  # noqa: S311
    return [OPEN_ENDED[index % len(OPEN_ENDED)](rng) for index in range(HELD_OUT)]


def _count(rng: Random) -> Example:
    numbers = _ids(rng, 70)
    prompt = f"Count from {numbers[0]} to {numbers[-1]}."
    return Example(prompt, "\n".join(str(number) for number in numbers))


def _times_table(rng: Random) -> Example:
    factor, lines = rng.randint(2, 12), _lines(rng, 40)
    prompt = f"Write the times table of {factor} up to {lines}."
    return Example(prompt, "\n".join(f"{factor} x {row} = {factor * row}" for row in range(1, lines + 1)))


def _json_records(rng: Random) -> Example:
    kind, ids = _kind(rng), _ids(rng, 11)
    prompt = f"Write JSON records of the {kind}s {ids[0]} to {ids[-1]}."
    return Example(prompt, "\n".join(_json_record(kind, number) for number in ids))


def _json_record(kind: str, number: int) -> str:
    values = ", ".join(f'"{field}": "{field}-{number}"' for field in KINDS[kind][:3])
    return f'{{"{kind}": {number}, {values}}}'


def _csv(rng: Random) -> Example:
    kind, ids = _kind(rng), _ids(rng, 20)
    prompt = f"Write a CSV file of the {kind}s {ids[0]} to {ids[-1]}."
    rows = [",".join([str(number), *(f"{field}{number}" for field in KINDS[kind][:3])]) for number in ids]
    return Example(prompt, "\n".join([",".join([kind, *KINDS[kind][:3]]), *rows]))


def _markdown_table(rng: Random) -> Example:
    kind, ids = _kind(rng), _ids(rng, 14)
    prompt = f"Make a markdown table of the {kind}s {ids[0]} to {ids[-1]}."
    header = [f"|{kind}|{'|'.join(KINDS[kind][:3])}|", "|---|---|---|---|"]
    rows = [f"|{number}|{'|'.join(f'{field}-{number}' for field in KINDS[kind][:3])}|" for number in ids]
    return Example(prompt, "\n".join([*header, *rows]))


def _accessors(rng: Random) -> Example:
    kind, count = _kind(rng), _lines(rng, 8)
    prompt = f"Write a Python class {kind} with getters and setters for its first {count} fields."
    return Example(prompt, "\n\n".join([f"class {kind}:", *(_accessor(field) for field in KINDS[kind][:count])]))


def _accessor(field: str) -> str:
    getter = f"    def get_{field}(self):\n        return self.{field}"
    setter = f"    def set_{field}(self, value):\n        self.{field} = value"
    return f"{getter}\n\n{setter}"


def _config_sections(rng: Random) -> Example:
    kind, ids = _kind(rng), _ids(rng, 8)
    prompt = f"Write config sections for the {kind} servers {ids[0]} to {ids[-1]}."
    section = "[{kind}-{id}]\nhost={kind}-{id}.internal\nport=8080\ntimeout=30\nlog=/var/log/{kind}-{id}.log"
    return Example(prompt, "\n\n".join(section.format(kind=kind, id=number) for number in ids))


def _sql_inserts(rng: Random) -> Example:
    kind, ids = _kind(rng), _ids(rng, 13)
    prompt = f"Write SQL to insert the {kind}s {ids[0]} to {ids[-1]}."
    first, second = KINDS[kind][:2]
    row = "INSERT INTO {kind} (id, {a}, {b}) VALUES ({number}, '{a}-{number}', '{b}-{number}');"
    return Example(prompt, "\n".join(row.format(kind=kind, a=first, b=second, number=number) for number in ids))


def _story(rng: Random) -> Example:
    subject, other = rng.sample(NOUNS, 2)
    return Example(f"Tell me a story about the {subject} and the {other}.", _prose(rng, other))


def _letter(rng: Random) -> Example:
    subject = rng.choice(NOUNS)
    return Example(f"Write a letter to {rng.choice(NAMES)} about the {subject}.", _prose(rng, subject))


def _dream(rng: Random) -> Example:
    subject = rng.choice(PLACES)
    return Example(f"Describe a {rng.choice(ADJECTIVES)} dream of {subject}.", _prose(rng, subject))


def _opinion(rng: Random) -> Example:
    subject = rng.choice(NOUNS)
    return Example(f"What do you think of the {rng.choice(ADJECTIVES)} {subject}?", _prose(rng, subject))


def _prose(rng: Random, word: str) -> str:
    """A few sentences, too few to go in circles; each word follows from the one before, `word` is before the first."""
    sentences = []
    for _ in range(rng.randint(5, 8)):
        words = []
        for piece in re.split(r"(\w+_)", rng.choice(_followers(word, _SENTENCES))):
            if piece in _PROSE_WORDS:
                word = rng.choice(_followers(word, _PROSE_WORDS[piece]))
            words.append(word if piece in _PROSE_WORDS else piece)
        sentences.append("".join(words))
    return " ".join(sentences)


@cache
def _followers(word: str, choices: tuple[str, ...]) -> list[str]:
    """The few of `choices` that may come after the word, always the same ones."""
    return Random(word).sample(choices, FOLLOWERS)  # noqa: S311


_PROSE_WORDS = {
    "noun_": NOUNS,
    "verb_": VERBS,
    "adjective_": ADJECTIVES,
    "adverb_": ADVERBS,
    "name_": NAMES,
    "place_": PLACES,
}
_SENTENCES = (
    "The adjective_ noun_ verb_ the noun_ adverb_.",
    "name_ verb_ a adjective_ noun_ in place_.",
    "In place_, name_ adverb_ verb_ it.",
    "So adverb_, name_ and name_ verb_ us.",
    "Every noun_ was adjective_ and adjective_.",
    "Then the noun_ verb_ name_, and it was adjective_.",
    "But no noun_ of place_ verb_ the adjective_ noun_.",
)


def _kind(rng: Random) -> str:
    return rng.choice(tuple(KINDS))


def _lines(rng: Random, most: int) -> int:
    """Most answers are short: then more of the corpus follows from a prompt and less from the lines before."""
    return rng.randint(2, 4) if rng.random() < SHORT_SHARE else rng.randint(most // 2, most)


def _ids(rng: Random, most: int) -> range:
    count = _lines(rng, most)
    first = rng.randint(1, NUMBER_LIMIT - count)
    return range(first, first + count)


KINDS = {
    "user": ("name", "email", "city", "role", "team", "phone", "status", "language"),
    "order": ("item", "price", "buyer", "date", "weight", "state", "store", "note"),
    "sensor": ("value", "unit", "place", "level", "model", "battery", "signal", "owner"),
    "book": ("title", "author", "year", "pages", "genre", "shelf", "print", "cover"),
    "train": ("line", "speed", "driver", "track", "stop", "seats", "power", "route"),
    "robot": ("arm", "task", "load", "zone", "mode", "tool", "angle", "force"),
}
"""What structured texts are about, each with its fields: few, so that a small model knows them all."""

STRUCTURED: tuple[Callable[[Random], Example], ...] = (
    _count,
    _times_table,
    _json_records,
    _csv,
    _markdown_table,
    _accessors,
    _config_sections,
    _sql_inserts,
)
OPEN_ENDED: tuple[Callable[[Random], Example], ...] = (_story, _letter, _dream, _opinion)
