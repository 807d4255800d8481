"""`python -m tools.tiny.conversations recipes/tiny/training`: write the conversations that tiny heads are trained on.

`general.jsonl` has all kinds of texts, as the target learned them. `shifted.jsonl` has letters and opinions only: a
head learns little of them in a mixture, though each of the target's own greedy answers to them follows one path.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from tools.tiny.corpus import Example, examples

GENERAL_SEED, GENERAL_COUNT = 16, 2000
SHIFTED_SEED, SHIFTED_COUNT = 17, 400
_SHIFTED_PROMPTS = ("Write a letter", "What do you think")


def general() -> list[Example]:
    """Texts of all kinds, none of them a prompt to measure with, and no prompt twice."""
    return _different(examples(GENERAL_SEED, 2 * GENERAL_COUNT), GENERAL_COUNT)


def shifted() -> list[Example]:
    """Letters and opinions, likewise."""
    found = (one for one in examples(SHIFTED_SEED, 20 * SHIFTED_COUNT) if one.prompt.startswith(_SHIFTED_PROMPTS))
    return _different(found, SHIFTED_COUNT)


def _different(found: Iterable[Example], count: int) -> list[Example]:
    return list(islice({example.prompt: example for example in found}.values(), count))


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
