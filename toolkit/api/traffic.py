"""What `improve` learns from and measures on, and what its last call for an endpoint took of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from toolkit.training.conversations import Conversation, Skipped, different, held_out
from toolkit.training.shares import mark_of, split, take, within_shares
from toolkit.training.sources import Objects, source_rows

_WORKLOAD = "held-out traffic"
"""With a space, which no workload of a recipe has in its name."""

_MOST_PROMPTS = 200


@dataclass(frozen=True)
class Traffic:
    """The questions that a training job holds out, and a digest of the conversations that it learns from.

    What a measurement asks is not learned, so the requests of a trial do not change the digest. `left_out` says of how
    many requests nothing is learned and nothing decided, by the reason.
    """

    held_out: Workload
    version: str
    left_out: Mapping[str, int]


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
    keep, skipped = settings.responses == "keep", Skipped()
    with TemporaryDirectory(prefix="toolkit-") as folder:
        rows = (row for source in settings.sources for row in source_rows(source, Path(folder), objects))
        found = list(different(rows, keep, skipped, strict=settings.strict))
    sides = split(found, settings.held_out, settings.seed)
    marks = [mark_of(one if keep else one.asked(), sides) for one in found]
    taken = within_shares(marks)
    used = [found[number] for number in taken.numbers]
    aside = held_out({sides.of(one.question) for one in used}, settings.held_out, settings.seed)
    learned = {(one if keep else one.asked()).digest for one in used if sides.of(one.question) not in aside}
    asked = {
        one.question: one for one in used if sides.of(one.question) in aside
    }  # a chat's last request has all before it
    lasts = list(asked.values())
    deciding = take([mark_of(one, sides) for one in lasts], _MOST_PROMPTS)
    for number, reason in taken.left_out:
        skipped.add(reason, found[number].location)
    for number, reason in deciding.left_out:
        skipped.add(reason, lasts[number].location)
    prompts = tuple(_prompt(lasts[number]) for number in deciding.numbers)
    return Traffic(Workload(_WORKLOAD, prompts), digest(sorted(learned)), skipped.counts)


def _prompt(conversation: Conversation) -> Prompt:
    """What was asked last, after all that was said before."""
    messages = list(conversation.messages)
    while messages[-1]["role"] == "assistant":
        messages.pop()
    return Prompt(tuple(messages))


def _path(endpoint: str) -> Path:
    return home_folder("improvements") / f"{endpoint}.json"
