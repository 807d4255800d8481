"""Several recipes at once: which they are, and what deploying each would do. Doing it is each one's own command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.api.deployment import plan
from toolkit.errors import RecipeNotFound, ToolkitError, UsageError
from toolkit.loading import load
from toolkit.planning.plan import Plan
from toolkit.recipe.load import find, plain_yaml
from toolkit.registry import endpoint_name

_OWN_KEYS = ("target", "speculation")
# Of a file that is not YAML, such as a recipe with a mistake: a key at the beginning of a line.
_OWN_LINE = re.compile(rf"^({'|'.join(_OWN_KEYS)})\s*:", re.MULTILINE)


@dataclass(frozen=True)
class Member:
    """One recipe of a fleet as it was `called`. `host` is the endpoint that serves it, which several may share.

    `error` is what is wrong with its file; then it has no name.
    """

    called: str
    name: str = ""
    host: str = ""
    speculates: bool = False
    error: ToolkitError | None = None


@dataclass(frozen=True)
class Fleet:
    """The recipes in order, and the files beside them in folders that are none."""

    members: tuple[Member, ...]
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Planned:
    """What deploying a member would do, or why that cannot be said."""

    member: Member
    plan: Plan | None = None
    error: ToolkitError | None = None

    @property
    def drift(self) -> list[str]:
        """How what runs differs from the recipe, in a line for each resource."""
        return [f"{action}: {action.reason}" for action in self.plan.changes] if self.plan else []

    def to_dict(self) -> dict[str, Any]:
        """The plan's own document, or the error, with the recipe as it was called."""
        said = {"error": type(self.error).__name__, "message": self.error.message} if self.error else {}
        return {"called": self.member.called, **(self.plan.to_dict() if self.plan else said)}


def is_fleet(called: Sequence[str]) -> bool:
    """Whether these are several recipes: more than one word, or a folder that is not a model."""
    return len(called) > 1 or any(_is_folder(name) for name in called)


def fleet(called: Sequence[str], platform: str | None = None) -> Fleet:
    """The recipes of these files, names and folders.

    Raises RecipeNotFound for a folder without any, UsageError where two have one name.
    """
    files: list[str] = []
    others: list[Path] = []
    for name in called:
        if _is_folder(name):
            found = recipes_in(Path(name).expanduser())
            files += map(str, found.recipes)
            others += found.others
        else:
            files.append(name)
    members = tuple(_member(file, platform) for file in files)
    _require_different(members)
    return Fleet(members, tuple(others))


def plan_fleet(
    fleet: Fleet, *, platform: str | None, baseline: bool, parallel: int, discount_percent: float = 0.0
) -> list[Planned]:
    """The plan of each, in order; one that cannot be made hides no other."""

    def of(member: Member) -> Planned:
        if member.error:
            return Planned(member, error=member.error)
        try:
            made = plan(member.called, platform=platform, baseline=baseline, discount_percent=discount_percent)
            return Planned(member, made)
        except ToolkitError as error:
            return Planned(member, error=error)

    threads = ThreadPoolExecutor(parallel)
    try:
        return list(threads.map(of, fleet.members))
    finally:
        threads.shutdown(cancel_futures=True)  # of Ctrl-C: no more are begun


def whole(planned: Sequence[Planned]) -> Plan:
    """All plans as one, for its size and cost: an endpoint that several recipes share is counted once."""
    by_host: dict[str, Plan] = {}
    for item in planned:
        if item.plan:
            other = by_host.get(item.member.host)
            dearer = other is None or (item.plan.price_per_hour or 0.0) > (other.price_per_hour or 0.0)
            by_host[item.member.host] = item.plan if dearer else by_host[item.member.host]
    plans = [item.plan for item in planned if item.plan]
    return Plan(
        recipe="",
        platform=_together(plan.platform for plan in plans),
        endpoints=tuple(name for plan in plans for name in plan.endpoints),
        actions=tuple(action for plan in plans for action in plan.actions),
        price_per_hour=_sum([plan.price_per_hour for plan in by_host.values()]),
        fingerprint="",
        price_before=_sum([plan.price_before for plan in by_host.values()]),
        account=_together(plan.account for plan in plans),
        region=_together(plan.region for plan in plans),
        discount_percent=max((plan.discount_percent for plan in plans), default=0.0),
    )


def _together(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, names)))


def _sum(prices: Sequence[float | None]) -> float | None:
    """None where one is unknown."""
    return None if None in prices else sum(price or 0.0 for price in prices)


def _is_folder(name: str) -> bool:
    path = Path(name).expanduser()
    return path.is_dir() and not (path / "config.json").is_file()


def _member(called: str, platform: str | None) -> Member:
    try:
        recipe = load(called, platform)
        return Member(called, recipe.name, endpoint_name(recipe), recipe.speculation is not None)
    except RecipeNotFound:
        raise
    except ToolkitError as error:
        return Member(called, error=error)


def _require_different(members: Sequence[Member]) -> None:
    """One endpoint cannot be what two recipes say: the second would replace what the first has made."""
    seen: dict[str, str] = {}
    for member in members:
        if member.name in seen:
            both = f"{seen[member.name]} and {member.called}"
            if find(seen[member.name]).samefile(find(member.called)):
                raise UsageError(f"{both} are one recipe", hint="Name it once.")
            message = f"{both} have one `name: {member.name}`, and so one endpoint"
            raise UsageError(message, hint=f"Give {member.called} another `name:`.")
        if member.name:
            seen[member.name] = member.called


@dataclass(frozen=True)
class Folder:
    """The recipes in a folder, by name, and its YAML files that are none, such as a chart's values."""

    recipes: tuple[Path, ...]
    others: tuple[Path, ...]


def recipes_in(folder: Path) -> Folder:
    """Those that lie in it, not in folders below; hidden files are left out. Raises RecipeNotFound if there is none.

    A recipe is a mapping with `target` or `speculation`; one that is not YAML is told by such a line, and counts.
    """
    files = sorted(path for path in folder.glob("*.y*ml") if path.is_file() and not path.name.startswith("."))
    recipes = tuple(path for path in files if _is_recipe(path))
    others = tuple(path for path in files if path not in recipes)
    if not recipes:
        found = f": {', '.join(path.name for path in others[:3])} have no `target:`" if others else ""
        below = next((path.parent for path in sorted(folder.glob("*/*.y*ml")) if _is_recipe(path)), None)
        hint = f"Did you mean {below}?" if below else "Write one: toolkit new MODEL"
        raise RecipeNotFound(f"{folder}: there is no recipe in this folder{found}", hint=hint)
    return Folder(recipes, others)


def _is_recipe(path: Path) -> bool:
    """One that cannot be read counts: the error that follows says why."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True
    try:
        data = plain_yaml(text)
    except ValueError:
        return bool(_OWN_LINE.search(text))
    return isinstance(data, dict) and any(key in data for key in _OWN_KEYS)
