"""Build the image of a recipe, and read what ECR's scan found in it."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from toolkit.api.context import arms_of, complete_recipe, open_for, recipe_file, record_on
from toolkit.apply.executor import leased, make
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.engines.arguments import builds
from toolkit.errors import MissingPackage, UsageError
from toolkit.loading import RecipeLike, load
from toolkit.planning.planner import make_plan
from toolkit.platforms.image import base_image
from toolkit.platforms.rules import Platform
from toolkit.recipe.schema import ContainerSection
from toolkit.registry import rules_of


def build(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    builder: str | None = None,
    sign: str | None = None,
    progress: Progress | None = None,
) -> str:
    """Build the image of a recipe with a `container` section, unless it exists; return its address in ECR, with digest.

    `deploy` does this too. `builder` (append, docker, buildah, codebuild) overrides the recipe's. `sign` is a key that
    signs the image, its bill of materials and its provenance, unless it has already: a file (cosign.key, its password
    in $COSIGN_PASSWORD), or the URL of a key service, for which cosign is needed. Raises UsageError for a recipe that
    needs no image of its own or an unusable key, ApplyError, and BuildError if what should be signed is missing.
    """
    key = _signing().signing_key(sign) if sign else None
    progress = progress or default_progress()
    loaded = load(recipe, platform)
    require(loaded)
    if builder and builds(loaded):
        section = loaded.container or ContainerSection()
        loaded = replace(loaded, container=section.model_copy(update={"builder": builder}))
    opened = open_for(loaded)
    complete, account = complete_recipe(loaded, opened)
    rules = rules_of(loaded.platform.name)
    building = rules.parts.building
    resources = building.resources(arms_of(complete, baseline=True), account) if building else ()
    if building is None or not resources:
        hint = "Write `container: custom`, or its settings, to have one built."
        image = building.uri(complete, account) if building else base_image(complete, account)
        raise UsageError(f"{loaded.name} runs {image} as it is: nothing is built", hint=hint)
    # Nothing but these is asked for, so that nothing else is taken for superseded.
    plan = make_plan(recipe_file(loaded), rules, [loaded.name], resources, opened.observe(resources, ()))
    with leased(opened, loaded.name) as held:
        make(plan, rules.kinds, held, record_on(opened, loaded.name, progress), progress)
    address = building.uri(complete, account)
    if key:
        opened.sign(address, key)
    return opened.with_digest(address)


def scan(recipe: RecipeLike, *, platform: str | None = None) -> dict[str, int]:
    """The number of vulnerabilities that ECR found in the recipe's image, by severity, worst first. Waits for its scan.

    Raises UsageError for a recipe without an image of its own, PlatformError for one that was not built or cannot be
    scanned.
    """
    opened, image = _built(recipe, platform, "scan")
    return opened.scan(image)


def verify(recipe: RecipeLike, *, platform: str | None = None, key: str | None = None) -> dict[str, str]:
    """The digests of the recipe's image, its bill of materials (`sbom`) and its `provenance`, as ECR has them.

    With a `key` (cosign.pub, or the URL of a key service) they must be signed with it. Raises UsageError for a recipe
    without an image of its own or an unusable key, BuildError where one is missing, not signed or about another image.
    """
    public = _signing().public_key(key) if key else None
    opened, image = _built(recipe, platform, "verify")
    return opened.verify(image, public)


def _signing() -> ModuleType:
    try:
        from toolkit.images import signing
    except ImportError as error:
        message = "signing and checking signatures needs the packages cryptography and PyNaCl"
        raise MissingPackage(message, extra="sign") from error
    return signing


def _built(recipe: RecipeLike, platform: str | None, verb: str) -> tuple[Platform, str]:
    """The recipe's platform, and the address of the image that is built for it."""
    loaded = load(recipe, platform)
    opened = open_for(loaded)
    complete, account = complete_recipe(loaded, opened)
    building = rules_of(loaded.platform.name).parts.building
    if building is None or not building.resources([complete], account):
        message = f"{loaded.name} has no image of its own to {verb}"
        raise UsageError(message, hint="AWS scans, patches and signs its own.")
    return opened, building.uri(complete, account)
