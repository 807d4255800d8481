"""`python -m tools.tiny.conversations recipes/tiny`: write the conversations that tiny heads are trained on.

`general.jsonl` has all kinds of texts, as the target learned them. `shifted.jsonl` has letters and opinions only. The
answers to open-ended questions are the target's own, which always takes the same way through its language, while the
corpus takes any; to structured questions it answers what the corpus has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from toolkit.training.chat import load_chat
from toolkit.training.generators import InTransformers
from toolkit.training.responses import Question
from toolkit.training.states import load_target
from tools.tiny.corpus import Example, examples, is_open_ended

GENERAL_SEED, GENERAL_COUNT = 16, 2000
SHIFTED_SEED, SHIFTED_COUNT = 17, 400
_SHIFTED_PROMPTS = ("Write a letter", "What do you think")
_LONGEST_ANSWER = 256


def general(count: int = GENERAL_COUNT) -> list[Example]:
    """Texts of all kinds, none of them a prompt to measure with, and no prompt twice."""
    return _different(examples(GENERAL_SEED, 2 * count), count)


def shifted() -> list[Example]:
    """Letters and opinions, likewise."""
    found = (one for one in examples(SHIFTED_SEED, 20 * SHIFTED_COUNT) if one.prompt.startswith(_SHIFTED_PROMPTS))
    return _different(found, SHIFTED_COUNT)


def _different(found: Iterable[Example], count: int) -> list[Example]:
    return list(islice({example.prompt: example for example in found}.values(), count))


def answered(found: list[Example], target: Path) -> list[Example]:
    """With the target's own answers to open-ended questions."""
    chat = load_chat(str(target))
    asked = [({"role": "user", "content": one.prompt},) for one in found if is_open_ended(one)]
    questions = [Question(messages, chat.prompt(messages), _LONGEST_ANSWER) for messages in asked]
    answers = InTransformers(load_target(str(target), dtype="float32"), chat)(questions)
    texts = iter(answer.text for answer in answers if answer)
    return [replace(one, answer=next(texts)) if is_open_ended(one) else one for one in found]


def conversation(example: Example) -> str:
    """One line of a file."""
    roles = zip(("user", "assistant"), (example.prompt, example.answer), strict=True)
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in roles]})


def main(folder: Path) -> None:
    """Write both files, with the answers of the target in the folder."""
    (folder / "training").mkdir(parents=True, exist_ok=True)
    for name, found in (("general", general()), ("shifted", shifted())):
        lines = [conversation(example) + "\n" for example in answered(found, folder / "models" / "target")]
        (folder / "training" / f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
