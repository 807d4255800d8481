"""`python -m tools.tiny.conversations recipes/tiny`: write the conversations that tiny heads are trained on.

`general.jsonl` has one question a conversation, of all kinds, as the target learned them. The answers to open-ended
questions are the target's own, which always takes the same way through its language, while the corpus takes any; to
structured questions it answers what the corpus has.

`shifted.jsonl` has four questions a conversation, one after the other, and every answer is the target's own: traffic
that is longer than all that the shipped heads were trained on, so that they draft it worse than single questions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from toolkit.recipe.prompts import Message
from toolkit.training.chat import load_chat
from toolkit.training.generators import InTransformers
from toolkit.training.responses import Question
from toolkit.training.states import load_target
from tools.tiny.corpus import Example, examples, is_open_ended

GENERAL_SEED, GENERAL_COUNT = 16, 2000
SHIFTED_SEED, SHIFTED_COUNT = 17, 70
TURNS = 4
_LONGEST_ANSWER = 256
# So that four of them have room in the target's context.
_LONGEST_OF_SEVERAL = 200

Conversation = Sequence[Message]


def general(count: int = GENERAL_COUNT) -> list[Example]:
    """Texts of all kinds, none of them a prompt to measure with, and no prompt twice."""
    return _different(examples(GENERAL_SEED, 2 * count), count)


def shifted(seed: int = SHIFTED_SEED, count: int = SHIFTED_COUNT) -> list[tuple[str, ...]]:
    """The questions of each conversation, likewise."""
    found = [one.prompt for one in _different(examples(seed, 2 * TURNS * count), TURNS * count)]
    return [tuple(found[start : start + TURNS]) for start in range(0, len(found), TURNS)]


def _different(found: Iterable[Example], count: int) -> list[Example]:
    return list(islice({example.prompt: example for example in found}.values(), count))


class Target:
    """The tiny target, which answers the last message of each conversation."""

    def __init__(self, folder: Path) -> None:
        self._chat = load_chat(str(folder))
        self._answer = InTransformers(load_target(str(folder), dtype="float32"), self._chat)

    def answers(self, asked: Sequence[Conversation], longest: int = _LONGEST_ANSWER) -> list[str]:
        """Its answers, of at most so many tokens."""
        questions = [Question(tuple(one), self._chat.prompt(one), longest) for one in asked]
        return [answer.text for answer in self._answer(questions) if answer]

    def talk(self, conversations: Sequence[Sequence[str]]) -> list[list[Message]]:
        """Conversations of these questions, each asked after the answer to the one before."""
        talks: list[list[Message]] = [[] for _ in conversations]
        for questions in zip(*conversations, strict=True):
            for talk, question in zip(talks, questions, strict=True):
                talk.append({"role": "user", "content": question})
            for talk, answer in zip(talks, self.answers(talks, _LONGEST_OF_SEVERAL), strict=True):
                talk.append({"role": "assistant", "content": answer})
        return talks


def answered(found: list[Example], target: Target) -> list[Example]:
    """With the target's own answers to open-ended questions."""
    texts = iter(target.answers([[{"role": "user", "content": one.prompt}] for one in found if is_open_ended(one)]))
    return [replace(one, answer=next(texts)) if is_open_ended(one) else one for one in found]


def conversation(example: Example) -> list[Message]:
    """A question and its answer."""
    return [{"role": "user", "content": example.prompt}, {"role": "assistant", "content": example.answer}]


def lines(conversations: Iterable[Conversation]) -> str:
    """The content of a file, a conversation on each line."""
    return "".join(json.dumps({"messages": one}) + "\n" for one in conversations)


def main(folder: Path) -> None:
    """Write both files, with the answers of the target in the folder."""
    target, out = Target(folder / "models" / "target"), folder / "training"
    out.mkdir(parents=True, exist_ok=True)
    (out / "general.jsonl").write_text(lines(map(conversation, answered(general(), target))))
    (out / "shifted.jsonl").write_text(lines(target.talk(shifted())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
