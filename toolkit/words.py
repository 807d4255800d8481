"""What is written, and what is meant: the words of other tools (`words.json`), and names that are nearly right."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

Kind = Literal["command", "option", "argument", "instead", "platform", "recipe"]
"""What a word is for. `instead` has options of a command that another command does; without them it acts in earnest."""


def our_word(word: str, *kinds: Kind) -> str:
    """What is called so here; empty where no other tool's word is known for it."""
    spellings = (word.lower(), word.lower().replace("-", "_"))
    return next((_words()[kind][one] for kind in kinds for one in spellings if one in _words()[kind]), "")


def suggest(word: str, known: Iterable[str], *kinds: Kind, cutoff: float = 0.6) -> list[str]:
    """The known name that is meant by a word: ours for that of another tool, else the most similar. Or none."""
    names = list(known)
    ours = our_word(word, *kinds)
    return [ours] if ours in names else difflib.get_close_matches(word.lower(), names, n=1, cutoff=cutoff)


@cache
def _words() -> Mapping[Kind, Mapping[str, str]]:
    words: Mapping[Kind, Mapping[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return words
