"""The keys of a recipe that this machine reads: SageMaker's, and how containers are started."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolkit.platforms.sagemaker import keys
from toolkit.recipe.assemble import Sections


class LocalPlatform(keys.AwsPlatform):
    """How SageMaker is rehearsed on this machine."""

    run: Literal["process", "container"] = Field(
        "process",
        description="on this machine: `process` starts the engine that is installed here; `container` builds the "
        "recipe's image, whose `base` must run here, and runs it with podman or docker",
    )


SECTIONS: Sections = {**keys.SECTIONS, "platform": LocalPlatform}
