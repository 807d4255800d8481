"""The references of findings and of causes of failure, from their JSON files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from toolkit.apply.causes import Known, words
from toolkit.checks.codes import Code, codes
from tools.docs.markdown import page, prose, table

_CHECKS = """\
What `toolkit check` finds. Codes are stable: programs may rely on them. An error stops a deployment; warnings and
infos do not. `toolkit check --explain CODE` says the same in a terminal. Paths of sources are those of vLLM's
package unless they begin with `toolkit`."""
_CAUSES = """\
What `toolkit explain` and a failed `toolkit deploy` name as the cause, with the edit that cures it: by lines of a
container's log, or by what the platform says. Codes are stable. A code that occurs twice has an edit for each of
its messages. What no message proves is not named."""


def checks_page() -> str:
    """Every code of a finding, by the part of a recipe that it is about."""
    parts = [_CHECKS]
    for topic, members in groupby(sorted(codes().values(), key=_topic), key=_topic):
        parts += [f"## {topic}", *(part for code in members for part in _check(code))]
    return page("Checks", *parts)


def _topic(code: Code) -> str:
    return code.name.partition(".")[0]


def _check(code: Code) -> Iterator[str]:
    yield f"### `{code.name}`"
    yield f"**{prose(code.severity)}**: {prose(code.what)}."
    facts = {"Without this check": code.otherwise, "Since vLLM": code.since, "Source": code.source}
    yield "\n".join(f"- {label}: {prose(text)}" for label, text in facts.items() if text)


def causes_page() -> str:
    """Every cause of failure with the edit that cures it."""
    parts = [_CAUSES, "## In a container's log", _causes(words().log)]
    for platform in ("sagemaker", "kubernetes"):
        parts += [f"## In what {platform} says", _causes(words(platform).reasons)]
    checks = [row for check in words().health_checks for row in check.hints.items()]
    return page("Causes of failure", *parts, "## In a failed health check", _table(checks))


def _causes(known: Iterable[Known]) -> str:
    return _table((cause.code, cause.hint) for cause in known)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return table(("cause", "the edit"), [(f"`{code}`", hint) for code, hint in dict.fromkeys(rows)])
