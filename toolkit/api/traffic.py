"""What `improve` learns from and measures on, and what its last call for an endpoint took of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from toolkit import documents
from toolkit.files import make_private_folder, write_whole, writing
from toolkit.home import home_folder
from toolkit.measure.arm import Workload
from toolkit.recipe.content import digest
from toolkit.recipe.prompts import Prompt
from toolkit.recipe.training_schema import TrainingSection
from toolkit.training.conversations import Conversation, conversation_of, held_out
from toolkit.training.sources import Objects, source_rows

_WORKLOAD = "held-out"
_MOST_PROMPTS = 200


@dataclass(frozen=True)
class Traffic:
    """The questions that a training job holds out, and a digest of the conversations that it learns from.

    What a measurement asks is held out, so the requests of a trial do not change the digest.
    """

    held_out: Workload
    version: str


@dataclass(frozen=True)
class Attempt:
    """The newest head of an endpoint: its folder, and whether its trial has ended.

    `traffic` and `settings` are digests of what it was made from.
    """

    __pydantic_config__ = documents.NO_OTHER_KEYS

    head: str
    traffic: str
    settings: str
    measured: bool = False

    def write(self, endpoint: str) -> None:
        """Keep it for the next call. Raises PlatformError."""
        path = _path(endpoint)
        with writing(path):
            make_private_folder(path.parent)
        write_whole(path, json.dumps(asdict(self)) + "\n", 0o600)


def last_attempt(endpoint: str) -> Attempt | None:
    """What `improve` did last; None where it did nothing, or where the file of it cannot be read."""
    try:
        return documents.parse(Attempt, documents.read_file(_path(endpoint)))
    except (OSError, documents.Unfit):
        return None


def read_traffic(settings: TrainingSection, objects: Objects) -> Traffic:
    """The traffic now; `objects` reads it in S3. Raises UsageError, PlatformError, HubError."""
    with TemporaryDirectory(prefix="toolkit-") as folder:
        conversations = list(_conversations(settings, Path(folder), objects))
    aside = held_out({one.question for one in conversations}, settings.held_out, settings.seed)
    last = {
        one.question: one for one in conversations if one.question in aside
    }  # a chat's last request has all before it
    learned = {
        (one if settings.responses == "keep" else one.asked()).digest
        for one in conversations
        if one.question not in aside
    }
    prompts = tuple(_prompt(one) for one in list(last.values())[:_MOST_PROMPTS])
    return Traffic(Workload(_WORKLOAD, prompts), digest(sorted(learned)))


def _conversations(settings: TrainingSection, folder: Path, objects: Objects) -> Iterator[Conversation]:
    """What the job learns from, and holds out of."""
    for source in settings.data:
        for location, row in source_rows(source, folder, objects):
            one = conversation_of(row, location)
            if one and (one.answered or settings.responses != "keep"):
                yield one


def _prompt(conversation: Conversation) -> Prompt:
    """What was asked last, after all that was said before."""
    messages = list(conversation.messages)
    while messages[-1]["role"] == "assistant":
        messages.pop()
    return Prompt(tuple(messages))


def _path(endpoint: str) -> Path:
    return home_folder("improvements") / f"{endpoint}.json"
