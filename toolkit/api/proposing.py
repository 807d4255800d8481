"""Write a recipe for a model, from its name: `toolkit new`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.api.checking import check
from toolkit.api.context import STDOUT, require_new
from toolkit.api.jumpstart import read_entry, write_jumpstart_recipe
from toolkit.api.model_sources import Sources
from toolkit.api.outside import OUTSIDE, Outside
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.catalogue import current_day
from toolkit.display import card, table
from toolkit.errors import ToolkitError, UsageError
from toolkit.files import write_whole
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.platforms.local.machine import runs_here
from toolkit.proposal.choose import propose
from toolkit.proposal.drafters import drafters, recipes_for
from toolkit.proposal.hardware import engine_for
from toolkit.proposal.model import Choice, Drafter, Goal, Proposal, Wishes
from toolkit.proposal.text import recipe_text
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import catalogue, known_model
from toolkit.recipe.lock import write_lock
from toolkit.recipe.source import ModelSource, from_folder, model_source
from toolkit.text import inert

# A head from the hub is read before its recipe is written, and may turn out not to fit.
_MOST_TRIES = 5
# The engine, its libraries and what it compiles, besides weights and a small KV cache.
_ENGINE_BYTES = 3 * 2**30


@dataclass(frozen=True)
class NewRecipe:
    """A recipe that was written: its file, the reason of each choice, and what the checks found.

    `rehearsal` is a recipe for this machine with the same models, None where they are too large for it; `notes` say
    so, and what else a reader should know. `text` is the recipe where `path` is `-`, and nothing was written.
    """

    path: Path
    choices: Sequence[Choice]
    findings: Sequence[Finding]
    notes: Sequence[str] = ()
    rehearsal: Path | None = None
    name: str = field(default="", repr=False)
    text: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        """Whether no check found an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit new --json`."""
        return {
            "recipe": str(self.path),
            "choices": [asdict(choice) for choice in self.choices],
            "findings": [asdict(finding) for finding in self.findings],
            "rehearsal": str(self.rehearsal) if self.rehearsal else None,
            **({"text": self.text} if self.text else {}),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        lines = [f"{choice.key}: {choice.value}  # {choice.why}" for choice in self.choices]
        return inert("\n".join([f"<NewRecipe {self.path}: {'ok' if self.ok else 'has errors'}>", *lines, *self.notes]))

    def _repr_html_(self) -> str:
        rows = [(choice.key, show_value(choice.value), choice.why, ", ".join(choice.others)) for choice in self.choices]
        return card(self.path, table(rows, ("key", "value", "why", "also possible")))


def show_value(value: object) -> str:
    """The value of a choice as text."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def new(
    model: str,
    *,
    out: str | os.PathLike[str] | None = None,
    platform: str = "sagemaker",
    method: str | None = None,
    goal: Goal = "latency",
    max_price: float | None = None,
    context: int | None = None,
    region: str | None = None,
    hardware: str | None = None,
    progress: Progress | None = None,
    _outside: Outside = OUTSIDE,
) -> NewRecipe:
    """Write a recipe for a model, with its lock, and if possible one to rehearse it on this machine.

    `model` is a Hugging Face id, `s3://bucket/prefix/`, a folder, or `jumpstart:<id>`, which is looked up on AWS.
    `max_price` is in US dollars per hour, `context` in tokens, `hardware` a part of the names of instance types or
    accelerators, such as `trn2` or `H100`. With `out="-"` no file is written: the recipe is the result's `text`.
    Without a network it uses what the toolkit knows of public models. Raises UsageError if the file exists, and
    ToolkitError with a reason for each drafter if no recipe passes the checks.
    """
    progress = progress or default_progress()
    folder = Path(out).parent if out else Path()
    wishes = Wishes(_spell(model, folder), platform, method, goal, max_price, context, region, hardware)
    engine_for(wishes)  # one that is unknown is an error
    if goal not in ("latency", "throughput"):
        raise UsageError(f"goal: `{goal}` is unknown", hint="Write `latency` or `throughput`.")
    source = model_source(wishes.model, folder)
    if source.kind == "jumpstart":
        if out is not None and Path(out) == STDOUT:
            raise UsageError("the recipe of a JumpStart model is checked as a file", hint="Leave out: --out -")
        return _of_jumpstart(source, Path(out) if out else None, wishes, progress)
    with _outside.open_hub() or nullcontext() as client:
        sources = Sources(client, folder.resolve(), progress.say)
        with progress.stage(f"look at {model}"):
            target, sources = sources.target(wishes.model)
            proposal = _confirm(wishes, target, sources)
    path = Path(out) if out else Path(f"{proposal.recipe['name']}.yaml")
    return _written_out(path, proposal, wishes, _origin(model), _outside.free_bytes)


def _of_jumpstart(source: ModelSource, out: Path | None, wishes: Wishes, progress: Progress) -> NewRecipe:
    """The recipe of a model of JumpStart's, which has no rehearsal: its container is JumpStart's own."""
    with progress.stage(f"look at {source}"):
        entry = read_entry(wishes, source)
        path, choices, notes = write_jumpstart_recipe(out, wishes, source, entry, _origin(str(source)))
    return NewRecipe(path, choices, check(path).findings, notes, name=load(path).name)


def _spell(model: str, folder: Path) -> str:
    """The model as the recipe names it: a folder relative to the recipe's, everything else as it is."""
    here = Path(model).expanduser()
    is_path = model.startswith((".", "/", "~")) or model_source(model, folder).kind != "hub"
    if not here.is_dir() or (not is_path and known_model(model)):
        return model
    return from_folder(folder, here)


def _confirm(wishes: Wishes, target: ModelFacts, sources: Sources) -> Proposal:
    """A proposal whose drafter's own files were read, if they can be: it is made again where they say otherwise."""
    able = drafters(target, sources.drafters(target), wishes.context, engine_for(wishes))
    proposal = propose(wishes, target, able, sources.folder)
    for _ in range(_MOST_TRIES):
        read = sources.complete(proposal.lock.drafter)
        if read == proposal.lock.drafter or read is None:
            break
        able = [replace(item, facts=read) if item.model == read.model else item for item in able]
        proposal = propose(wishes, target, able, sources.folder)
        if proposal.lock.drafter == read:
            break
    ready = [name for name in recipes_for(target) if name != proposal.recipe["name"]]
    note = [f"recipes for this model that come with the toolkit: {', '.join(ready)}"] if ready else []
    return replace(proposal, notes=(*proposal.notes, *note))


def _written_out(path: Path, main: Proposal, wishes: Wishes, origin: str, free_bytes: Callable[[], int]) -> NewRecipe:
    if path == STDOUT:
        return NewRecipe(path, main.choices, (), main.notes, text=recipe_text(main, origin), name=main.recipe["name"])
    rehearsal, note = _rehearsal(path, main, wishes, free_bytes)
    wanted = {path: main, **({_local(path): rehearsal} if rehearsal else {})}
    for file in wanted:
        require_new(file)
    for file, proposal in wanted.items():
        write_whole(file, recipe_text(proposal, origin))
        write_lock(load(file), proposal.lock)
    findings, notes, local = check(path).findings, (*main.notes, *note), _local(path) if rehearsal else None
    return NewRecipe(path, main.choices, findings, notes, local, main.recipe["name"])


def _origin(model: str) -> str:
    return f"Made by `toolkit new {model}` on {current_day()}. Change what you like: `toolkit check` tells what works."


def _local(path: Path) -> Path:
    return path.with_stem(f"{path.stem}-local")


def _rehearsal(
    path: Path, proposal: Proposal, wishes: Wishes, free_bytes: Callable[[], int]
) -> tuple[Proposal | None, tuple[str, ...]]:
    """The same models on this machine, or why not and what to rehearse instead."""
    here = next((name for name in registry.platforms() if not registry.rules_of(name).facts.has_instance_types), None)
    if here is None or wishes.platform == here:
        return None, ()
    if not runs_here():
        return None, ("No rehearsal on this machine: the local platform does not run on this system.",)
    speculation = proposal.recipe["speculation"]
    method = speculation["method"]
    stand_in = f"tiny/{method}" if f"tiny/{method}" in catalogue() else "tiny/p-eagle"
    instead = f"To rehearse the same road with a tiny model: toolkit deploy {stand_in}"
    if why := _too_much(proposal, free_bytes):
        return None, (f"No rehearsal of these models on this machine: {why}. {instead}",)
    k, model, same = speculation["num_speculative_tokens"], speculation.get("model"), f"as in {path.name}"
    drafter = Drafter(method, k, same, same, model, proposal.lock.drafter)
    try:
        local = propose(
            Wishes(wishes.model, here, goal=wishes.goal), proposal.lock.target, [drafter], path.parent.resolve()
        )
    except ToolkitError as error:
        return None, (f"No rehearsal of these models on this machine: {error.message}. {instead}",)
    return local, ()


def _too_much(proposal: Proposal, free_bytes: Callable[[], int]) -> str:
    """Why this machine cannot run the models; empty if it may."""
    from toolkit.sizing.weights import stored_bytes

    models = [facts for facts in (proposal.lock.target, proposal.lock.drafter) if facts]
    quantized = next((facts.model for facts in models if facts.config.get("quantization_config")), None)
    if quantized:
        return f"{quantized} is quantized for GPUs"
    try:
        needed = sum(stored_bytes(facts) for facts in models) + _ENGINE_BYTES
    except ToolkitError as error:
        return error.message
    free = free_bytes()
    if needed <= free:
        return ""
    room = f"{free / 2**30:.0f} are free (toolkit local stop ends what is kept here)"
    return f"they need about {needed / 2**30:.0f} GiB of memory, and {room}"
