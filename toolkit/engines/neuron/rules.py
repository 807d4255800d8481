"""EngineRules of the engines for Trainium and Inferentia, all of which are built on vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import LOGICAL_CORES_VARIABLES, chips, family, grouped_cores
from toolkit.engines.neuron.checks import check_neuron
from toolkit.engines.neuron.flags import is_fork, neuron_flags, neuron_variables, vllm_version
from toolkit.engines.neuron.generations import ANY_ENGINE, facts, generation_of, generations, newest
from toolkit.engines.neuron.hardware_checks import check_neuron_hardware
from toolkit.engines.neuron.keys import SECTIONS
from toolkit.engines.neuron.model_checks import check_neuron_models, samples_greedily
from toolkit.engines.neuron.sizing import NeuronMemory
from toolkit.engines.vllm.artifacts import settings_parts
from toolkit.engines.vllm.flags import ranks, switched_off
from toolkit.engines.vllm.rules import OnVllm, VllmMetrics
from toolkit.findings import Finding
from toolkit.recipe.facts import Lock
from toolkit.recipe.imported import Imported
from toolkit.recipe.recipe import Compilation, HardwareRules, Recipe
from toolkit.recipe.rules import Published
from toolkit.recipe.schema import EngineSection

# Both models are stored with 2 bytes per weight; transformers loads 4 where no type is given.
_FLOAT32_COPY = 2

_GREEDY = (
    "the device samples greedily, whatever temperature a request has; Neuron's guide and reference disagree on whether "
    "that is the default, so it is set here"
)


class NeuronCompilation(Compilation):
    """Everything that compiled code depends on, its time and its room on disk.

    Both engines compile for exact shapes, and NxD Inference loads any compiled code without checking what it was
    compiled for. So everything that may change the code is among its parts, and when in doubt too: to compile once too
    often costs an hour, but to serve with the wrong code gives wrong answers.
    """

    how_to_want = "Remove `engine: {compile: at-start}`."
    how_to_do_without = (
        "write `engine: {compile: at-start}`: then the container compiles when it starts, for which SageMaker allows "
        "60 min at most."
    )

    def wanted(self, recipe: Recipe) -> bool:
        return recipe.engine.compile_ahead

    def without(self, recipe: Recipe) -> Recipe:
        return recipe

    def published(self, method: str) -> Published | None:
        return facts().published.get(method)

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """Of the recipe's first instance type."""
        generation = generation_of(recipe.engine)
        off = sorted(switched_off(recipe, vllm_version(recipe)))
        return {
            **settings_parts(recipe, image, target, drafter, LOGICAL_CORES_VARIABLES),
            **({"switched_off": off} if off else {}),
            "sdk": generation.sdk if generation else "unknown",
            "logical_cores": grouped_cores(recipe.engine.env) or "default",
        }

    def seconds(self, recipe: Recipe) -> int:
        """Estimated from the size of the weights."""
        gigabytes = (recipe.weight_bytes or 0) / 1e9
        return 60 * ceil(facts().compile_minutes_per_gb * gigabytes)

    def disk_bytes(self, recipe: Recipe, fetched: int, *, ahead: bool) -> int:
        """NxD Inference saves what it downloads once more, in float32, and from that shards in the served type.

        The shards of code that is compiled beforehand are written to where that code is kept.
        """
        if recipe.engine.name != "nxd-inference" or (recipe.engine.compile_ahead and not ahead):
            return 0
        return _FLOAT32_COPY * fetched + (0 if recipe.engine.compile_ahead else recipe.weight_bytes or 0)


class NeuronMetrics(VllmMetrics):
    def reports_drafts(self, recipe: Recipe) -> bool:
        return not is_fork(recipe)  # which does not count Neuron's


class NeuronHardware(HardwareRules):
    def drafts_on(self, recipe: Recipe, instance: Instance) -> bool:
        generation = generation_of(recipe.engine)
        return generation is not None and generation.serves(recipe.method, family(instance.name))

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_neuron_hardware(recipe, models)

    def notes(self, recipe: Recipe) -> Iterator[str]:
        """The generation of the Neuron SDK that serves, and why no newer one does."""
        chosen, on = generation_of(recipe.engine), family(recipe.platform.types[0])
        best = newest(ANY_ENGINE, recipe.method, on)
        if chosen is None or best is None:
            return
        about = f", {chosen.note}" if chosen.note else ""
        if chosen != best:
            yield f"Engine: {chosen}{about}; chosen by the recipe, although {best} supports {recipe.method} on {on} too"
            return
        newer = generations()[: generations().index(chosen)]
        without = [f"{item.engine} {item.version}" for item in newer if on in item.families]
        others = f"; newer ones do not: {', '.join(without)}" if without else ""
        yield f"Engine: {chosen}{about}; it is the newest that supports {recipe.method} on {on}{others}"


class Neuron(OnVllm):
    """One engine. For `neuron` the generation decides which of the two engines it is."""

    sections = SECTIONS
    memory = NeuronMemory()
    metrics = NeuronMetrics()
    artifacts = compilation = NeuronCompilation()
    hardware = NeuronHardware()
    causes: Sequence[Path] = (Path(__file__).with_name("causes.json"), *OnVllm.causes)

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "nxd-inference":  # its compiled code is kept too, for containers that are started again
            self.cache_folders = {**OnVllm.cache_folders, "TOOLKIT_COMPILED": "compiled"}

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        """If the recipe leaves it open, the newest generation that supports the method on that hardware.

        If none does, the newest of that engine, and a check reports why it does not work.
        """
        able = generations(self.name)
        anywhere = (one for one in able if method in one.methods and not instance_type)
        chosen = newest(self.name, method, family(instance_type)) or next(anywhere, able[0])
        name = chosen.engine if self.name == ANY_ENGINE else self.name
        published = facts().published.get(method)  # with more requests speculation may be a loss
        most = facts().default_max_num_seqs
        return written.edit(
            name=name,
            version=written.version or chosen.version,
            max_num_seqs=written.max_num_seqs or (min(most, published.max_num_seqs) if published else most),
        )

    def default_tokens(self, engine: EngineSection, method: str) -> int:
        """The generation's K, or the usual one if the generation does not support the method (a check reports that)."""
        generation = generation_of(engine)
        if generation and method in generation.methods:
            return generation.methods[method].default_num_speculative_tokens
        return super().default_tokens(engine, method)

    def knows(self, version: str) -> bool:
        return any(one.version == version for one in generations(self.name))

    def adopt(self, imported: Imported) -> bool:
        from toolkit.engines.neuron.importing import adopt  # for one command

        return adopt(imported)

    def runs_on(self, instance: Instance) -> bool:
        return bool(instance.neuron_cores)

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        """The number of chips, or of logical cores if the instance is unknown or has no chips."""
        cores = ranks(recipe.engine.args)
        return chips(instance, recipe.engine.env, cores) if instance and instance.neuron_cores else cores

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return neuron_flags(recipe)

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return neuron_variables(recipe)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_neuron(recipe)
        if samples_greedily(recipe):
            yield Finding("neuron.greedy-only", _GREEDY, "engine", hint="", severity="info")
        if models:
            yield from check_neuron_models(recipe, models)


ANY = Neuron(ANY_ENGINE)
VLLM_NEURON = Neuron("vllm-neuron")
NXD_INFERENCE = Neuron("nxd-inference")
