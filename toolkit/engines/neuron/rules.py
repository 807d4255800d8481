"""EngineRules of the engines for Trainium and Inferentia, all of which are built on vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import chips, family
from toolkit.engines.neuron.artifacts import compiled_parts
from toolkit.engines.neuron.checks import check_neuron
from toolkit.engines.neuron.flags import is_fork, neuron_flags, neuron_variables
from toolkit.engines.neuron.generations import ANY_ENGINE, facts, generation_of, generations, newest
from toolkit.engines.neuron.hardware_checks import check_neuron_hardware
from toolkit.engines.neuron.keys import SECTIONS
from toolkit.engines.neuron.model_checks import check_neuron_models, samples_greedily
from toolkit.engines.neuron.sizing import fit_on_cores
from toolkit.engines.vllm import rules as vllm
from toolkit.engines.vllm.flags import ranks
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Published
from toolkit.recipe.schema import EngineSection
from toolkit.sizing.fit import Fit, Pair

# Both of its models are stored with 2 bytes per weight; transformers loads 4 where no type is given.
_FLOAT32_COPY = 2
_GREEDY = (
    "the device samples greedily, whatever temperature a request has; Neuron's guide and reference disagree on whether "
    "that is the default, so it is set here"
)


class Neuron(vllm.Vllm):
    """One engine. For `neuron` the generation decides which of the two engines it is."""

    cpu_package = ""
    explains_hardware = True
    sections = SECTIONS
    causes: Sequence[Path] = (Path(__file__).with_name("causes.json"), *vllm.Vllm.causes)

    def __init__(self, name: str) -> None:
        self.name = name

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        """If the recipe leaves it open, the newest generation that supports the method on that hardware.

        If none does, the newest of that engine, and a check reports why it does not work.
        """
        able = generations(self.name)
        anywhere = (found for found in able if method in found.methods and not instance_type)
        chosen = newest(self.name, method, family(instance_type)) or next(anywhere, able[0])
        name = chosen.engine if self.name == ANY_ENGINE else self.name
        return written.edit(
            name=name,
            version=written.version or chosen.version,
            max_num_seqs=written.max_num_seqs or facts().default_max_num_seqs,
        )

    def drafts_on(self, recipe: Recipe, instance: Instance) -> bool:
        generation = generation_of(recipe.engine)
        return generation is not None and generation.serves(recipe.method, family(instance.name))

    def published(self, method: str) -> Published | None:
        return facts().published.get(method)

    def default_tokens(self, engine: EngineSection, method: str) -> int:
        """The generation's K, or vLLM's if the generation does not support the method (a check reports that)."""
        generation = generation_of(engine)
        if generation and method in generation.methods:
            return generation.methods[method].default_num_speculative_tokens
        return super().default_tokens(engine, method)

    def knows(self, version: str) -> bool:
        return any(found.version == version for found in generations(self.name))

    def runs_on(self, instance: Instance) -> bool:
        return bool(instance.neuron_cores)

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        """The number of chips, or of logical cores if the instance is unknown or has no chips."""
        cores = ranks(recipe.engine.args)
        return chips(instance, recipe.engine.env, cores) if instance and instance.neuron_cores else cores

    def compiles(self, recipe: Recipe) -> bool:
        return True

    def compiled_parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        return compiled_parts(recipe, image, target, drafter)

    def compile_seconds(self, recipe: Recipe) -> int:
        """Estimated from the size of the weights."""
        gigabytes = (recipe.weight_bytes or 0) / 1e9
        return 60 * ceil(facts().compile_minutes_per_gb * gigabytes)

    def disk_bytes(self, recipe: Recipe, *, compiles: bool) -> int:
        """NxD Inference saves what it downloads once more, in float32, and from that shards in the served type.

        The shards of code that is compiled beforehand are written to where that code is kept.
        """
        fetched = super().disk_bytes(recipe, compiles=compiles)
        if recipe.engine.name != "nxd-inference" or (recipe.engine.compile_ahead and not compiles):
            return fetched
        shards = 0 if recipe.engine.compile_ahead else recipe.weight_bytes or 0
        return fetched + _FLOAT32_COPY * fetched + shards

    def cache_variables(self, folder: str) -> dict[str, str]:
        """NxD Inference's compiled code is kept too, for containers that are started again."""
        compiled = {"TOOLKIT_COMPILED": f"{folder}/compiled"} if self.name == "nxd-inference" else {}
        return {**super().cache_variables(folder), **compiled}

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return neuron_flags(recipe)

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return neuron_variables(recipe)

    def reports_drafts(self, recipe: Recipe) -> bool:
        return not is_fork(recipe)  # which does not count Neuron's

    def fit(self, recipe: Recipe | None, pair: Pair, instance: Instance, empty: Fit) -> Fit:
        assert recipe is not None  # `neuron` is not vLLM's default engine
        return fit_on_cores(recipe, pair, instance, empty)

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

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_neuron(recipe)
        if samples_greedily(recipe):
            yield Finding("neuron.greedy-only", _GREEDY, "engine", severity="info")
        if models:
            yield from check_neuron_models(recipe, models)

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_neuron_hardware(recipe, models)


ANY = Neuron(ANY_ENGINE)
VLLM_NEURON = Neuron("vllm-neuron")
NXD_INFERENCE = Neuron("nxd-inference")
