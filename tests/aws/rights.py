"""What callers and roles are allowed to do, held against what they did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from standin import ACCOUNT, StandIn
from standin_caller import action_of, resources_of
from standin_policies import Access, permits

from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.checks.account import Permission
from toolkit.recipe.recipe import Recipe

# Nobody needs a right to it, or can do without.
WITHOUT_A_RIGHT = {"sts:GetCallerIdentity", "ecr:BatchGetImage", "ecr:DescribeRepositories"}


def not_allowed(
    standin: StandIn, recipe: Recipe, listed: Callable[[Recipe, Account], Iterable[Permission]] = permissions
) -> set[tuple[str, str]]:
    """Actions that were taken, and on what, without being listed."""
    needed = listed(recipe, Account(ACCOUNT, "us-west-2"))
    allowed = [(action, arn) for item in needed for action in item.actions for arn in item.resources]
    return {
        (action_of(call), arn)
        for call in standin.calls
        for arn in resources_of(call)
        if action_of(call) not in WITHOUT_A_RIGHT
        and not any(action == action_of(call) and fnmatchcase(arn, pattern) for action, pattern in allowed)
    }


def written(standin: StandIn) -> dict[str, set[str]]:
    """The policies that were written, by the role's name."""
    found: dict[str, set[str]] = {}
    for call in standin.calls:
        if str(call) == "iam:PutRolePolicy":
            found.setdefault(call.request["RoleName"], set()).add(call.request["PolicyDocument"])
    return found


def asked_of(standin: StandIn, role: str) -> list[Access]:
    return [access for access in standin.account.iam.asked if access.who.rpartition("/")[2] == role]


def never_allowed(standin: StandIn) -> set[tuple[str, str]]:
    """What was refused, and not only because it came too early."""
    iam, policies = standin.account.iam, written(standin)
    return {
        (access.action, access.resource)
        for access in iam.refused
        if not permits(
            [iam.instead.get(item, item) for item in policies.get(access.who.rpartition("/")[2], ())], access
        )
    }


def without_one(document: str) -> Iterator[tuple[tuple[str, str], str]]:
    """The policy without each of its actions, with what is taken away."""
    policy = json.loads(document)
    for number, statement in enumerate(policy["Statement"]):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for action in actions:
            rest = [each for each in actions if each != action]
            changed = [{**statement, "Action": rest}] if rest else []
            statements = [*policy["Statement"][:number], *changed, *policy["Statement"][number + 1 :]]
            yield (action, str(statement["Resource"])), json.dumps({**policy, "Statement": statements})


def needless(standin: StandIn) -> set[tuple[str, str]]:
    """Actions of written policies without which all that was asked of the role would have been allowed too."""
    return {
        taken
        for role, documents in written(standin).items()
        for document in documents
        for taken, rest in without_one(document)
        if all(permits([rest], access) or not permits([document], access) for access in asked_of(standin, role))
    }
