"""Hypothesis draws the same examples whatever else is loaded.

Its own backend takes one value in twenty from the constants of all modules of ours that happen to be loaded, so that
the examples of a test depend on which tests are collected beside it.
"""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

NAME = "without-local-constants"
WITHOUT_SHRINKING = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))


class WithoutLocalConstants(providers.HypothesisProvider):
    """Hypothesis's own backend, with the constants that it brings along and no others."""

    _local_constants = Constants()


def set_up() -> None:
    """A failing example is printed as it was found; `--hypothesis-profile shrink` searches for the smallest one."""
    providers._get_local_constants = Constants  # it collects them with the tests, in three seconds of each process
    providers.AVAILABLE_PROVIDERS[NAME] = f"{__name__}.{WithoutLocalConstants.__name__}"
    settings.register_profile("shrink", backend=NAME, derandomize=True, deadline=None)
    settings.register_profile("toolkit", settings.get_profile("shrink"), phases=WITHOUT_SHRINKING)
    settings.load_profile("toolkit")
