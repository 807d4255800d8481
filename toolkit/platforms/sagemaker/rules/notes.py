"""Notes for a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolkit.engines.arguments import builds, left_out_notes
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.image import base_image, by_digest, store_of
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.kinds.image import image_uri
from toolkit.platforms.sagemaker.rules import compilation, in_account, jumpstart, jumpstart_entry
from toolkit.platforms.sagemaker.rules.model_data import model_data
from toolkit.platforms.sagemaker.rules.names import bucket_name, on_aws
from toolkit.platforms.sagemaker.rules.price import price_text
from toolkit.recipe.recipe import Recipe


def notes(recipe: Recipe, account: Account) -> Iterator[str]:
    """Notes, one sentence each. On the local platform, only of files and the base image."""
    store = store_of(recipe)
    yield from left_out_notes(recipe)
    if not on_aws(recipe):
        if builds(recipe):
            yield f"The image is built from {base_image(recipe, account, store)}, and stays on this machine"
        return
    if account.id == NO_ACCOUNT:
        yield (
            f"This plan was made without an AWS account, as if it were empty: {NO_ACCOUNT} stands for its number, "
            "and images are not pinned. It cannot be applied."
        )
    else:
        role = f"{account.role} ({account.role_source})" if account.role else "a role that is made for it"
        yield f"Account {account.id}, {account.region}: runs as {role}, weights in s3://{bucket_name(account)}"
    if account.is_far and (text := in_account.suggestion(recipe, account)):
        yield text
    if hardware := recipe.engine_rules.hardware:
        yield from hardware.notes(recipe)
    yield from _jumpstart(recipe, account)
    uri = image_uri(recipe, account)
    if builds(recipe):
        base = base_image(recipe, account, store)
        moving = "" if "@" in base else ", whose digest is unknown: build again if the tag has moved"
        yield f"The image is built from {base}{moving}"
    else:
        whose = "JumpStart" if recipe.target.kind == "jumpstart" else "AWS"
        yield f"No image is built: {whose}'s own image is used, {by_digest(uri, recipe, account)}"
    if aws(recipe).inference_component and any(data.channel for data in model_data(recipe, account)):
        yield (
            "Unverified: AWS documents no second model data source (here the drafter, or files of settings) for "
            "inference components. If the container does not find it, serve without `inference_component`"
        )
    yield from compilation.notes(recipe)
    yield f"Price: {price_text(recipe)}"


def _jumpstart(recipe: Recipe, account: Account) -> Iterator[str]:
    """JumpStart's container on each instance type, with the recipe's own speculation, which takes precedence."""
    for here in map(recipe.on, recipe.platform.types):
        if theirs := jumpstart.target_model(here, account.jumpstart):
            speculation = here.speculation
            tokens = speculation.num_speculative_tokens if speculation else None
            own = jumpstart_entry.Preset(here.method, tokens, "", read=True) if speculation else None
            served = replace(theirs, preset=own)
            yield str(served)
            yield from jumpstart_entry.doubts(served)
