"""Where `toolkit new` gets facts of models from: their files, the hub if it answers, else what the toolkit knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from http import HTTPStatus
from pathlib import Path

import httpx

from toolkit.errors import HubError, RecipeNotFound, ToolkitError, UnreadableModel
from toolkit.platforms.elsewhere import open_files
from toolkit.proposal import hub
from toolkit.proposal.model import Drafter
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.hub import HubFiles
from toolkit.recipe.known import known_model, known_models
from toolkit.recipe.model_files import read_folder, read_model
from toolkit.recipe.source import ModelSource, model_source

_LIKE = 0.7
"""From which likeness on two names may be meant for one another."""


@dataclass(frozen=True)
class Sources:
    """`client` is None without the hub, and `unread` says why; relative folders are those of the recipe's `folder`."""

    client: httpx.Client | None
    folder: Path
    say: Callable[[str], None]
    unread: str = "the hub was not read"

    def target(self, model: str) -> tuple[ModelFacts, Sources]:
        """Facts of the model, and the sources that answered. Raises ToolkitError if nothing is known of it."""
        source = model_source(model, self.folder)
        if source.folder and source.folder.is_file():
            raise UnreadableModel(f"{model} is a file, and no model", hint=f"Of a recipe: toolkit plan {model}")
        if source.folder and not source.folder.is_dir():
            hint = _near(model, _named_like(model, source.folder)) or "A model on the hub is named MAKER/MODEL."
            raise UnreadableModel(f"there is no folder {model}", hint=hint)
        if source.folder:
            return replace(read_folder(source.folder), model=model), self
        if source.kind == "s3":
            return read_model(open_files(source), model), self
        if self.client is None:
            return self._known(model, self.unread), self
        try:
            return _read(self.client, source, self.say), self
        except HubError as error:
            return self._without_hub(model, error)

    def _without_hub(self, model: str, error: HubError) -> tuple[ModelFacts, Sources]:
        status = error.__cause__.response.status_code if isinstance(error.__cause__, httpx.HTTPStatusError) else None
        if status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.UNAUTHORIZED and not known_model(model)):
            assert self.client
            raise _not_found(model, hub.similar_names(self.client, model)) from error
        why = _first_line(error)
        facts = self._known(model, why, error.hint if status else "")
        self.say(f"{why}; going by what the toolkit itself knows of {model}")
        return facts, self if status else replace(self, client=None, unread=why)

    def _known(self, model: str, why: str, hint: str = "") -> ModelFacts:
        """What the toolkit itself knows; `why` the hub did not tell, and what to do about that."""
        if found := known_model(model):
            return found
        near = _near(model, [facts.model for facts in known_models().values()])
        mend = hint or "A folder works without a network: toolkit new ./FOLDER"
        message = f"{why}, and {model} is not one of the {len(known_models())} models known without it"
        raise UnreadableModel(message, hint=f"{near} {mend}".strip())

    def drafters(self, target: ModelFacts) -> list[Drafter]:
        """What the hub lists for the target; nothing without it."""
        if self.client is None or model_source(target.model, self.folder).kind != "hub":
            return []
        try:
            heads = hub.heads(self.client, target.model)
            return heads or hub.smaller_models(self.client, target)
        except HubError as error:
            self.say(f"{_first_line(error)}; drafters of the hub are not considered")
            return []

    def complete(self, drafter: ModelFacts | None) -> ModelFacts | None:
        """The drafter's facts, read from its files if the hub answers."""
        if drafter is None or not drafter.partial or self.client is None:
            return drafter
        try:
            return _read(self.client, model_source(drafter.model, self.folder), self.say)
        except HubError as error:
            self.say(f"{_first_line(error)}; going by what the toolkit itself knows of {drafter.model}")
            return drafter


def _read(client: httpx.Client, source: ModelSource, say: Callable[[str], None]) -> ModelFacts:
    files = HubFiles(source.model, source.revision, client)
    say(f"reading {source} on the hub (headers, never the weights)")
    return replace(read_model(files, source.model), wanted="main")


def _not_found(model: str, listed: Sequence[str]) -> RecipeNotFound:
    near = _near(model, [*listed, *(facts.model for facts in known_models().values())])
    hint = near or "Correct the name; a folder is written with a leading `./`, and a gated model needs: hf auth login"
    return RecipeNotFound(f"the hub has no model {model} that you may see", hint=hint)


def _named_like(model: str, folder: Path) -> list[str]:
    """What may be meant by a folder that does not exist: one beside it for a path, models of the hub for a name."""
    if not model.startswith((".", "/", "~")):
        return [facts.model for facts in known_models().values()]
    start = model.removesuffix(folder.name)
    return [f"{start}{beside.name}" for beside in folder.parent.glob("*/")]


def _near(model: str, names: Sequence[str]) -> str:
    """A question with the names most like the model's, with or without its maker; empty if there are none."""
    scored = sorted(((_likeness(model.lower(), name.lower()), name) for name in dict.fromkeys(names)), reverse=True)
    likely = [name for likeness, name in scored if likeness >= _LIKE][:3]
    return f"Did you mean {' or '.join(likely)}?" if likely else ""


def _likeness(written: str, name: str) -> float:
    """From 0 to 1; a name that is a part of the other, such as `qwen3-8b` of `qwen3-8b-instruct`, counts more."""
    short, wanted = name.rpartition("/")[2], written.rpartition("/")[2]
    ratio = max(SequenceMatcher(None, written, name).ratio(), SequenceMatcher(None, wanted, short).ratio())
    return 0.9 + ratio / 10 if short in wanted or wanted in short else ratio


def _first_line(error: ToolkitError) -> str:
    return error.message.splitlines()[0]
