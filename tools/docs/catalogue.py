"""The references of what the package knows: recipes, engines and their images, instance types and prices, drafters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from toolkit import registry
from toolkit.catalog import lookup, methods
from toolkit.catalog.entries import Head, Instance, NoPrice, Price
from toolkit.engines import registry as engine_registry
from toolkit.loading import load
from toolkit.recipe.known import catalogue
from tools.docs.markdown import code, page, prose, table


def recipe_pages() -> dict[str, str]:
    """A page for each recipe that comes with the package, by its path in the documentation."""
    return {f"reference/recipes/{name}.md": _recipe(name) for name in catalogue()}


def _recipe(name: str) -> str:
    recipe = load(name)
    return page(
        name,
        prose(recipe.description or ""),
        code(recipe.path.read_text(encoding="utf-8").rstrip(), "yaml"),
        code(f"$ toolkit plan {name}", "console"),
    )


def engines_page() -> str:
    """Engines and their images on each platform; methods and what they need."""
    drafting = [
        (
            f"`{found.name}`",
            found.kind,
            "yes" if found.parallel else "no",
            found.default_num_speculative_tokens,
            ", ".join(f"{engine} {settings.since}" for engine, settings in found.engines.items()),
        )
        for found in methods.methods()
        if not found.spelling_of
    ]
    parts = [
        "## Drafting methods",
        table(("method", "what drafts", "one parallel pass", "default K", "engines, since"), drafting),
    ]
    for engine in engine_registry.engines():
        rows = [
            (platform, image.version, f"`{image.repository}:{image.tag}`", image.date, image.note)
            for platform in (*registry.platforms(), "upstream")
            for image in lookup.images(platform, engine)
        ]
        parts += [f"## Images of `{engine}`", table(("platform", "version", "image", "date", "note"), rows)]
    return page("Engines and images", _dated("images.json"), *parts)


def instances_page() -> str:
    """Instance types with their memory and prices."""
    head = ("type", "processors", "memory", "vCPUs", "SageMaker $/h", "EC2 $/h")
    rows = [_instance(item) for item in sorted(lookup.instances(), key=lambda item: not item.accelerator)]
    note = (
        "On demand, in one region each; `~`: the source is not sure. `toolkit catalog update` reads AWS's price list."
    )
    missing = [*_without_price("SageMaker", "no_price"), *_without_price("EC2", "no_ec2_price")]
    return page("Instance types and prices", _dated("instances.json"), note, table(head, rows), "\n".join(missing))


def _without_price(of: str, attribute: str) -> list[str]:
    """Why some types have no price, a line for each reason."""
    reasons: dict[NoPrice, list[str]] = {}
    for item in lookup.instances():
        if why := getattr(item, attribute):
            reasons.setdefault(why, []).append(f"`{item.name}`")
    return [
        f"- No price of {', '.join(names)} in {of}: {why.reason}. See {why.address}." for why, names in reasons.items()
    ]


def _instance(item: Instance) -> tuple[str, ...]:
    gib = item.memory_per_accelerator_mib * item.accelerator_count / 1024
    count = f"{item.accelerator_count} x " if item.accelerator_count else ""
    memory = f"{gib:.0f} GiB" if item.accelerator_count else f"{item.host_memory_gib:.0f} GiB (host)"
    ec2 = next(iter(item.ec2_prices), None)
    prices = (_price(item.price()) if item.hostable else "not hosted", _price(ec2))
    return f"`{item.name}`", f"{count}{item.processors}", memory, str(item.vcpus), *prices


def _price(price: Price | None) -> str:
    if price is None:
        return "?"
    unsure = "" if price.quality.startswith("good") else "~"
    return f"{unsure}{price.usd_per_hour:.2f} ({price.region}, {price.date})"


def heads_page() -> str:
    """Public drafters by target, with what was published of them."""
    parts = [_dated("heads.json")]
    for target, members in groupby(sorted(lookup.heads(), key=_target), key=_target):
        parts += [f"## {target}", *(part for head in members for part in _head(head))]
    return page("Public drafters", *parts)


def _target(head: Head) -> str:
    return head.target


def _head(head: Head) -> Iterator[str]:
    yield f"### `{head.repo}`"
    facts = {
        "Method": f"`{head.method}`",
        "K of its card": head.card_k,
        "Licence": head.license,
        "First vLLM": head.min_engine,
        "Acceptance length": ", ".join(f"{a.acceptance_length} ({a.workload}, K={a.k})" for a in head.acceptance),
        "Note": head.note,
        "Source": head.source,
    }
    yield "\n".join(f"- {label}: {prose(str(value))}" for label, value in facts.items() if value)


def _dated(file: str) -> str:
    return f"As of {lookup.dates()[file]}, from `toolkit/catalog/{file}`, which names the source of each fact."
