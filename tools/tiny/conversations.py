"""`python -m tools.tiny.conversations recipes/tiny/training`: write the conversations that tiny heads are trained on.

`general.jsonl` has all kinds of texts, as the target learned them. `shifted.jsonl` has letters and opinions only: the
target's own answers to them follow one path, of which a head that saw all kinds has learned little.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tools.tiny.corpus import Example, examples

GENERAL_SEED, GENERAL_COUNT = 16, 3500
SHIFTED_SEED, SHIFTED_COUNT = 17, 600
_SHIFTED_PROMPTS = ("Write a letter", "What do you think")


def general() -> Iterator[Example]:
    """Texts of all kinds, none of them a prompt to measure with."""
    return examples(GENERAL_SEED, GENERAL_COUNT)


def shifted() -> Iterator[Example]:
    """Letters and opinions."""
    found = (example for example in examples(SHIFTED_SEED, 100_000) if example.prompt.startswith(_SHIFTED_PROMPTS))
    return islice(found, SHIFTED_COUNT)


def conversation(example: Example) -> str:
    """One line of a file."""
    roles = zip(("user", "assistant"), (example.prompt, example.answer), strict=True)
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in roles]})


def main(folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in (("general", general()), ("shifted", shifted())):
        (folder / f"{name}.jsonl").write_text("".join(conversation(example) + "\n" for example in found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
