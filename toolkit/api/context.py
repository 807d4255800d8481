"""What the public functions share: which recipe, on which platform, with which record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit import registry
from toolkit.errors import AmbiguousEndpoint, EndpointNotFound, RecipeNotFound, ToolkitError, UsageError
from toolkit.home import home_folder
from toolkit.images.reference import parse, same_repository
from toolkit.loading import RecipeLike, load, on_platform
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.image import by_digest
from toolkit.recipe.facts import Lock
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Slo
from toolkit.registry import base_images, open_platform, open_readable, rules_of, session_of

if TYPE_CHECKING:
    from toolkit.apply.progress import Progress
    from toolkit.endpoint.platform import EndpointPlatform
    from toolkit.planning.record import Record
    from toolkit.planning.resources import Observer
    from toolkit.platforms.rules import AwsSession, Platform, TrainingPlatform
    from toolkit.platforms.sagemaker.rules.jumpstart import Entries


def load_named(recipe: RecipeLike, platform: str | None = None, login: AwsSession | None = None) -> Recipe:
    """As `load`; also that of an approved version in SageMaker's model registry, which its ARN or its group's names."""
    if isinstance(recipe, str) and recipe.startswith("arn:"):
        recipe = _approved(recipe, login)
    return load(recipe, platform)


def _approved(arn: str, login: AwsSession | None) -> Path:
    from toolkit.platforms.sagemaker.packages import PackageArn, approved_recipe
    from toolkit.platforms.sagemaker.session import SageMakerSession

    found = PackageArn.of(arn)
    return approved_recipe(SageMakerSession(login).open(found.region).clients, found)


def open_for_plan(recipe: Recipe, login: AwsSession | None = None) -> Platform | None:
    """The recipe's platform, None where it does not run or cannot be asked: a plan needs no account."""
    return open_readable(recipe.platform.name, session_of(recipe.platform.name).scope(recipe), login)


def open_for(recipe: Recipe, login: AwsSession | None = None) -> Platform:
    """The recipe's platform. Raises PlatformError where it cannot be asked."""
    return open_platform(recipe.platform.name, session_of(recipe.platform.name).scope(recipe), login)


def complete_recipe(recipe: Recipe, platform: Observer | None) -> tuple[Recipe, Account]:
    """The recipe with what its lock and its platform fill in, and the account to plan for."""
    session = session_of(recipe.platform.name)
    account = platform.account(recipe) if platform else session.unread_account(session.scope(recipe))
    return pin_by_lock(_with_jumpstart(recipe, account.jumpstart), account), account


def pin_by_lock(recipe: Recipe, account: Account) -> Recipe:
    """The recipe with all that its lock pins. Raises UsageError for a lock of images that the recipe runs no more."""
    lock = read_lock_of(recipe)
    if lock and lock.images:
        used = base_images(recipe, account)
        for image in used:
            old = [known for known in lock.images if known not in used and same_repository(known, image)]
            if old and image not in lock.images:
                message = f"{lock_path(recipe)} pins {old[0]}, and the recipe runs {image}"
                raise UsageError(message, hint=f"Take it up: toolkit lock {recipe.path}")
    return pinned(recipe, lock)


def _with_jumpstart(recipe: Recipe, entries: Mapping[str, Mapping[str, Any]]) -> Recipe:
    add = rules_of(recipe.platform.name).parts.with_jumpstart
    return add(recipe, entries) if add else recipe


def jumpstart_entries(recipe: Recipe, login: AwsSession | None = None) -> Entries:
    """JumpStart's entries of the models that the recipe names. Calls AWS only if it names any."""
    if all(source.kind != "jumpstart" for source in recipe.models.values()):
        return {}
    from toolkit.platforms.sagemaker.session import SageMakerSession

    return SageMakerSession(login).open(recipe.region).jumpstart_entries(recipe)


def deployed_recipe(recipe: Recipe, login: AwsSession | None = None) -> Recipe:
    """With JumpStart's K and instance type, if the caller may look: who may only invoke gets the recipe's own."""
    try:
        return _with_jumpstart(recipe, jumpstart_entries(recipe, login))
    except ToolkitError:
        return recipe


def read_lock_of(recipe: Recipe) -> Lock | None:
    """The recipe's lock; one that cannot be read was a finding already."""
    try:
        return read_lock(lock_path(recipe))
    except ToolkitError:
        return None


def arms_of(recipe: Recipe, baseline: bool) -> list[Recipe]:
    """The recipe, and with `baseline` its twin without speculation."""
    return [recipe, recipe.baseline()] if baseline and recipe.speculation else [recipe]


def find_platform(
    endpoint: str, recipe: Recipe | None, platform: str | None, scope: str | None, login: AwsSession | None = None
) -> Platform | None:
    """The platform of the endpoint: the one you name, the recipe's, or the first with an endpoint of that name.

    With `login` it is AWS. Without such an endpoint it is the last that could be asked; None where there is none.
    Raises AmbiguousEndpoint, and PlatformError if nobody has it and a platform does not answer.
    """
    if recipe:
        moved = on_platform(recipe, platform)
        session = session_of(moved.platform.name, login)
        return session.running(session.scope(moved) or scope)
    if platform or login is not None:
        session = session_of(platform or "sagemaker", login)
        return session.running(scope or session.scope_of(endpoint))
    last: Platform | None = None
    failed: ToolkitError | None = None
    for name in registry.platforms():
        session = session_of(name)
        if session.can_be_asked():
            try:
                part = scope or session.scope_of(endpoint)
                opened = session.glance(part)
                if opened and exists(opened, endpoint):
                    return session.running(part)
            except AmbiguousEndpoint:
                raise
            except ToolkitError as error:
                failed = failed if session.may_be_absent else failed or error
                continue
            last = last if session.may_be_absent or not opened else session.running(part)
    if failed:
        raise failed
    return last


def exists(platform: Platform, endpoint: str) -> bool:
    """Whether the platform has an endpoint of that name, or an inference component."""
    try:
        platform.address(endpoint)
    except EndpointNotFound:
        return False
    return True


def in_service(platform: Platform, endpoint: str) -> bool:
    """Whether it answers."""
    try:
        return platform.status(platform.address(endpoint)).status == "InService"
    except EndpointNotFound:
        return False


def record_on(platform: EndpointPlatform | TrainingPlatform, endpoint: str, progress: Progress) -> Record:
    """The history of what was done to an endpoint on an open platform."""
    return record_of(endpoint, platform.name, platform.account(), progress)


def record_of(endpoint: str, platform: str, account: Account, progress: Progress) -> Record:
    """The history of what was done to an endpoint there; what is wrong with it is said as progress.

    Of an account that is not known it is that of all.
    """
    from toolkit.planning.record import Record

    known = () if account.id == NO_ACCOUNT else (account.id, account.location)
    place = "/".join(filter(None, (platform, *known)))
    return Record(home_folder("records") / f"{endpoint}.jsonl", progress.say, place=place)


def recipe_file(recipe: Recipe | None) -> str:
    """A recipe as plans and records name it; empty where an endpoint was called by its own name."""
    return str(recipe.path.resolve()) if recipe else ""


def recipe_or_none(name: RecipeLike) -> Recipe | None:
    """The recipe that `name` means, None when it can only be the name of an endpoint."""
    try:
        return load(name)
    except RecipeNotFound:
        if "/" in str(name) or str(name).endswith((".yaml", ".yml")):
            raise
        return None


STDOUT = Path("-")
"""In place of a file: nothing is written, and the answer is the text."""


def require_new(path: Path) -> None:
    """Raise UsageError if there is such a file."""
    if path.exists():
        raise UsageError(f"{path} exists already", hint=f"Write another one: --out {path.with_stem(path.stem + '-2')}")


def find_unpinned(recipe: Recipe, account: Account) -> Iterator[str]:
    """What a completed recipe takes from elsewhere that may be something else tomorrow, and how to pin it."""
    yield from unpinned_models(recipe)
    command = f"Pin it: toolkit lock {recipe.path}"
    for image in images_by_tag(recipe, account):
        if parse(by_digest(image, recipe, account)).digest is None:
            yield f"image {image}: its tag may move. {command}"
    for wheel in wheels_of(recipe):
        if wheel not in recipe.wheel_digests:
            yield f"container.wheels {wheel}: a version without its hash. {command}"


def wheels_of(recipe: Recipe) -> list[str]:
    """The packages that its image gets."""
    return recipe.container.wheels if recipe.container else []


def unpinned_models(recipe: Recipe) -> Iterator[str]:
    """Models whose content nothing pins; a folder is pinned by what is in it when a plan is made."""
    for key, source in recipe.models.items():
        if source.kind == "hub" and not source.commit:
            moves = f"no commit is known, and `{source.revision or 'main'}` may move"
            yield f"{key} {source}: {moves}. Pin it: toolkit lock {recipe.path}"
        elif source.kind == "s3":
            yield f"{key} {source}: objects in S3 may change. Name a model of the hub, or a folder, to have it pinned"
        elif source.kind == "jumpstart":
            yield f"{key} {source}: it is JumpStart's newest version. Name a model of the hub to have it pinned"


def images_by_tag(recipe: Recipe, account: Account) -> list[str]:
    """Images from elsewhere that are named by tag; none where there is no image, which the plan itself says."""
    try:
        images = base_images(recipe, account)
    except UsageError:
        return []
    return [image for image in images if parse(image).digest is None]


def require_default_share(slo: Slo | None) -> None:
    """Raise UsageError for an SLO of another share of the requests than 90 %, where only that is known."""
    if slo and slo.share != Slo.model_fields["share"].default:
        message = f"90 % of the requests are held within the limits, not {slo.share:.1%}"
        raise UsageError(message, hint="Leave `share` out of the SLO; `toolkit bench --slo` takes it.")
