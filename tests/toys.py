"""A platform, an engine and a method that the package does not have, as somebody else would add them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairs import write_pair

from toolkit import registry
from toolkit.apply.progress import Progress
from toolkit.apply.waiter import EndpointStatus, LogLine
from toolkit.catalog import lookup, methods
from toolkit.catalog.lookup import Image, Instance
from toolkit.catalog.methods import EngineMethod, Method
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import check_flags
from toolkit.engines.registry import EngineEntry
from toolkit.engines.vllm.keys import VllmSpeculation
from toolkit.errors import EndpointNotFound
from toolkit.findings import Finding
from toolkit.planning.kinds import Decision, Kind, in_order
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.parts import PlatformParts
from toolkit.recipe.assemble import Sections
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import EngineRules, Metrics, PlatformFacts, Recipe
from toolkit.recipe.rules import MetricNames
from toolkit.recipe.schema import EngineSection, PlatformSection
from toolkit.registry import PlatformEntry
from toolkit.sizing.fit import Fit, MemoryModel

METHOD = Method(
    "toy-drafts",
    drafter="none",
    kind="text",
    default_num_speculative_tokens=2,
    engines={"toy": EngineMethod("toy", "1.0.0")},
)


SECTIONS: Sections = {"platform": PlatformSection}
ENGINE_SECTIONS: Sections = {"engine": EngineSection, "speculation": VllmSpeculation}


class ToyMemory(MemoryModel):
    """It takes one GiB, whatever the models."""

    def fit(self, recipe: Recipe | None, models: Lock, instance: Instance, empty: Fit) -> Fit:
        return replace(empty, fits=True, workspace_gib=1.0)


class ToyEngine(EngineRules):
    sections = ENGINE_SECTIONS
    memory = ToyMemory()
    causes: Sequence[Path] = ()
    variable_prefix = "TOY_"
    own_flags: Mapping[str, str] = {"context-length": "`engine.max_model_len`"}

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        return written.edit(version=written.version or "1.2.3", max_num_seqs=written.max_num_seqs or 16)

    def knows(self, version: str) -> bool:
        return True

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        return 1

    def runs_on(self, instance: Instance) -> bool:
        return bool(instance.compute_capability)

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return {"context-length": recipe.engine.max_model_len, "speculative-algorithm": recipe.method}

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return {}

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        def unknown(flag: str) -> Iterator[Finding]:
            yield Finding("toy.flag", f"no flag `{flag}`", f"engine.args.{flag}", hint="Remove it.")

        yield from check_flags(recipe, unknown)


class ToyMetrics(Metrics):
    names = MetricNames(*(f"toy:{number}" for number in range(13)))

    def reports_drafts(self, recipe: Recipe) -> bool:
        return True


ENGINE = ToyEngine()


class ToyKind(Kind):
    """What is in the toy box is known by its colour."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing and existing.state["Colour"] != resource.request["Colour"]:
            return Decision("update", f"is {existing.state['Colour']}")
        return super().decide(resource, existing, observed)

    def serves(self, request: Mapping[str, Any]) -> str | None:
        return str(request["Colour"]) if self.kind == "Top" else None


class ToyRules:
    """A box, and a top that spins in it."""

    name = "toy-box"
    sections = SECTIONS
    kinds: Sequence[Kind] = (ToyKind("Box"), ToyKind("Top"))
    facts = PlatformFacts(gated_models="ask at home", price_per_hour=lambda recipe: 0.25)
    parts = PlatformParts(price_now=lambda observed, region: 0.0)

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        return written.edit(weights=written.weights or "hub")

    def instance(self, name: str) -> Instance | None:
        return None

    def instances(self) -> Sequence[Instance]:
        return ()

    def images(self, recipe: Recipe) -> Sequence[Image]:
        (image,) = lookup.images("local", "vllm")[:1]
        return (replace(image, engine="toy", version=recipe.engine.version),)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        if recipe.scaling.max_instances > 1:
            yield Finding("toy.one-box", "there is one box", "scaling.max_instances", hint="Remove it.")

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        colour = {"toy-drafts": "red", "none": "white"}
        made = [Resource(kind, arm.name, {"Colour": colour[arm.method]}) for arm in arms for kind in ("Top", "Box")]
        return in_order(made, ("Box", "Top"))

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        yield "Tops spin"


class ToyBox:
    """The open platform: what it holds is in memory."""

    name = "toy-box"
    poll_seconds = 0.0

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def __init__(self) -> None:
        self.holds: dict[tuple[str, str], str] = {}

    def account(self, recipe: Recipe | None = None) -> Account:
        return Account("1", "home")

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        return Observed(
            tuple(Existing(*key, True, (key[1],), {"Colour": colour}) for key, colour in self.holds.items())
        )

    def lease(self, endpoint: str) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def execute(self, action: Action, progress: Progress) -> None:
        if action.verb == "delete":
            del self.holds[action.kind, action.name]
        else:
            self.holds[action.kind, action.name] = action.request["Colour"]

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        return ("Top", endpoint) in self.holds

    def address(self, name: str) -> str:
        self.status(name)
        return name

    def status(self, endpoint: str) -> EndpointStatus:
        if ("Top", endpoint) not in self.holds:
            raise EndpointNotFound(f"there is no endpoint {endpoint}")
        return EndpointStatus(endpoint, "InService", self.holds["Top", endpoint])

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        return iter(())


class ToySession:
    """There is one box."""

    account_name = "a box"
    unasked = ""
    may_be_absent = False
    is_this_machine = False

    def __init__(self) -> None:
        self.box = ToyBox()

    def scope(self, recipe: Recipe) -> None:
        return

    def can_be_asked(self) -> bool:
        return True

    def open(self, scope: str | None) -> ToyBox:
        return self.box

    def running(self, scope: str | None) -> ToyBox:
        return self.box

    glance = running

    def scope_of(self, endpoint: str) -> None:
        return

    def cleaner(self, scope: str | None) -> None:
        return


RULES, SESSION = ToyRules(), ToySession()


@contextmanager
def registered(engine: str = "toys:ENGINE") -> Iterator[None]:
    """The toy platform, engine and method can be used while the block runs."""
    registry.register_platform("toy-box", PlatformEntry("toys:RULES", "toys:SESSION", "toys:SECTIONS"))
    engine_registry.register_engine("toy", EngineEntry(engine, "toys:ENGINE_SECTIONS"))
    methods.register(METHOD)
    yield
    registry.unregister_platform("toy-box")
    engine_registry.unregister_engine("toy")
    methods.unregister("toy-drafts")
    SESSION.box.holds.clear()


def write_toy_recipe(folder: Path, text: str) -> Path:
    """A recipe on a tiny pair, without a lock."""
    path = write_pair(folder)
    path.write_text(text)
    path.with_suffix(".lock.json").unlink(missing_ok=True)
    return path
