"""Version 3 of the SageMaker Python SDK: what its users have becomes a recipe, and a recipe a ModelBuilder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolkit.api.context import complete_recipe
from toolkit.api.importing import ImportedRecipe, read_document, write_imported
from toolkit.checks.run import require
from toolkit.errors import UsageError
from toolkit.loading import RecipeLike, load
from toolkit.planning.planner import make_plan
from toolkit.registry import rules_of

if TYPE_CHECKING:
    from sagemaker.core.resources import Endpoint, Model
    from sagemaker.serve import ModelBuilder

    from toolkit.platforms.rules import AwsSession


def from_sagemaker(
    source: ModelBuilder | Model | Endpoint | str,
    *,
    out: str | os.PathLike[str] | None = None,
    platform: str | None = None,
    name: str | None = None,
    session: AwsSession | None = None,
) -> ImportedRecipe:
    """Write the recipe of what you serve with the SageMaker SDK, as `toolkit import` does of a command line.

    `source` is a ModelBuilder (built or not), a Model or an Endpoint of version 3, or the name of any endpoint with a
    model. Image, variables, model data, role, network and instance type are taken over; what a recipe has no place for
    is in `left_out` with the reason. Nothing is run; `session` reads the endpoint. `platform` is by default
    `sagemaker`, or `local` for the SDK's local mode.
    """
    from toolkit.platforms.sagemaker import sdk  # brings boto3
    from toolkit.platforms.sagemaker.session import SageMakerSession

    described = sdk.describe(source, lambda: SageMakerSession(session).open().clients)
    imported = read_document(described)
    imported.source = f"endpoint {source}" if isinstance(source, str) else f"the SDK's {type(source).__name__}"
    platform = platform or ("local" if sdk.is_local(source) else "sagemaker")
    return write_imported(imported, out, platform, name, by="toolkit.from_sagemaker")


def to_sagemaker(recipe: RecipeLike, *, session: AwsSession | None = None) -> ModelBuilder:
    """The recipe as a ModelBuilder of the SageMaker SDK, whose `build` and `deploy` make what `toolkit deploy` would.

    That is the model and its endpoint alone: no alarms, no claim, no proof, and no `toolkit status`. A role that the
    recipe lets the toolkit create is left to the SDK. Makes nothing. Needs the package `sagemaker`. Raises RecipeError
    when a check finds an error, UsageError for a recipe whose weights or image only `deploy` puts where they are read.
    """
    from toolkit.platforms.sagemaker import sdk
    from toolkit.platforms.sagemaker.rules.hosting import builder_arguments
    from toolkit.platforms.sagemaker.session import SageMakerSession

    loaded = load(recipe)
    rules = rules_of(loaded.platform.name)
    if rules.parts.templates is None:
        hint = "Write `platform: {name: sagemaker}`. The SDK's local mode needs Docker; toolkit deploy does not."
        raise UsageError(f"{loaded.name} runs on platform `{loaded.platform.name}`, not on SageMaker", hint=hint)
    require(loaded)
    opened = SageMakerSession(session).open(loaded.region)
    complete, account = complete_recipe(loaded, opened)
    wanted = rules.desired([complete], account)
    made = make_plan(str(loaded.path), rules, [complete.name], wanted, opened.observe(wanted, [complete.name]))
    actions = [action for action in made.actions if action.verb != "delete"]
    return sdk.model_builder(*builder_arguments(loaded.path, actions), opened.clients, session)
