"""A new head beside the one that serves: as a variant of its endpoint, or on an endpoint of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.apply.progress import Progress
from toolkit.platforms.parts import Trial
from toolkit.recipe.recipe import Recipe


@dataclass(frozen=True)
class OwnEndpoint:
    """The new head on an endpoint of its own: that of the recipe `candidate`."""

    candidate: Recipe
    running: Endpoint
    steps: Steps
    progress: Progress

    def begin(self) -> tuple[Endpoint, Endpoint]:
        """The new head, and the one that serves, once both answer."""
        return self.steps.deploy_uncompiled(
            replace(self.candidate, training=None), progress=self.progress
        ), self.running

    def disturbed(self) -> bool:
        """Whether somebody else has changed the endpoint since."""
        return False

    def end(self, redeployed: bool) -> None:
        """Remove what it has made; with `redeployed`, the recipe has been deployed anew since."""
        self.steps.destroy(self.candidate, platform=self.candidate.platform.name, progress=self.progress)


@dataclass
class OnVariant:
    """The new head as a variant of the endpoint that serves.

    Killed in the middle, the endpoint answers with both heads: the same command goes on from there, and deploying the
    recipe brings back what was before.
    """

    recipe: Recipe
    candidate: Recipe
    trial: Trial
    steps: Steps
    progress: Progress
    _tried: tuple[Endpoint, str] | None = None

    def begin(self) -> tuple[Endpoint, Endpoint]:
        tried = replace(self.recipe, candidate=self.candidate.speculation, training=None)
        endpoint = self.steps.deploy_uncompiled(tried, progress=self.progress)
        self._tried = endpoint, endpoint.status().config
        return replace(endpoint, variant=self.trial.candidate), replace(endpoint, variant=self.trial.live)

    def disturbed(self) -> bool:
        return self._tried is not None and self._tried[0].status().config != self._tried[1]

    def end(self, redeployed: bool) -> None:
        if redeployed:
            return
        if self.disturbed():
            self.progress.say(f"{self.recipe.name} was deployed by somebody else meanwhile: it stays as it is")
            return
        self.progress.say(
            f"{self.recipe.name}: back to the head before. If this stops: toolkit deploy {self.recipe.path}"
        )
        self.steps.deploy_uncompiled(replace(self.recipe, training=None), progress=self.progress)
