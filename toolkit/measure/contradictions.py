"""Which options of `bench` contradict one another, for the command and for Python alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_LOADS = ("concurrency", "rate", "also")
_CONTRADICTIONS = (
    ("what_if_acceptance", ("arm", "resume", "also", "trace", "turns", "prompt_tokens"), "measures anew, one thing"),
    ("trace", (*_LOADS, "requests", "fixed_length", "turns", "prompt_tokens"), "has its own load and lengths"),
    ("slo", (*_LOADS, "what_if", "what_if_acceptance", "publish", "turns"), "finds the rate by itself"),
    ("turns", ("rate", "prompt_tokens"), "come one after the other and grow"),
)
_DETAILS = (("also_role", "also"), ("dummy_weights", "what_if_acceptance"), ("speed", "trace"))


def contradiction(given: Mapping[str, object], spelled: Callable[[str], str]) -> str:
    """What is wrong with the options that are given, by their names on the command line; empty if nothing is."""
    for option, others, why in _CONTRADICTIONS:
        if option == "slo" and given.get("trace"):
            continue  # then it is what the trace's requests are held against
        if given.get(option) and (wrong := [spelled(other) for other in others if given.get(other)]):
            return f"{spelled(option)} {why}: leave out {', '.join(wrong)}"
    for option, of in _DETAILS:
        if given.get(option) and not given.get(of):
            return f"{spelled(option)} is for {spelled(of)}"
    return ""
