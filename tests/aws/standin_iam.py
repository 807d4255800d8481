"""Who may do what in the account, and from when on: IAM's changes arrive late, as in every account.

Policies are moto's, what they mean is Cedar's (standin_policies). Time is a clock of its own, which goes on by five
seconds with every call, as long as the product waits between two tries; tests may move it too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.iam.models import Policy, Role, iam_backends
from standin_http import Call
from standin_policies import Access, permits

from toolkit.platforms.local.aws import ACCOUNT, ServiceError

LATE = 30.0
"""Seconds until what was changed in IAM is known everywhere, by default. AWS names no figure (IAM user guide,
troubleshoot_general: "Changes that I make are not always immediately visible"); half of it for a role to exist."""

_SECONDS_A_CALL = 5.0
_MOST_INLINE = 10_240
_CHANGING = (
    "CreateRole",
    "PutRolePolicy",
    "DeleteRolePolicy",
    "AttachRolePolicy",
    "DetachRolePolicy",
    "PutRolePermissionsBoundary",
    "DeleteRolePermissionsBoundary",
    "UpdateAssumeRolePolicy",
)


@dataclass(frozen=True)
class Rights:
    """The policies of one identity: all documents must allow it together, and the boundary, if there is one, too."""

    documents: tuple[str, ...]
    boundary: str | None = None

    @classmethod
    def of(cls, statements: Iterable[Mapping[str, Any]], boundary: str | None = None) -> Rights:
        """With one policy of these statements."""
        return cls((json.dumps({"Version": "2012-10-17", "Statement": list(statements)}),), boundary)

    def refusal(self, access: Access) -> str:
        """Why these rights do not allow it, in IAM's words; empty if they do."""
        if not permits(self.documents, access):
            return f"no identity-based policy allows the {access.action} action"
        if self.boundary is not None and not permits([self.boundary], access):
            return f"no permissions boundary allows the {access.action} action"
        return ""


@dataclass
class Iam:
    """What tests say of the account, and what was asked.

    `late` is how many seconds changes take. `caller` are the rights of whoever calls, None for one who may do all;
    `control_policies` are the organization's SCPs for this account. A policy in `instead` counts as the other one.
    `asked` is every access that was evaluated, `refused` those that were not allowed at that moment.
    """

    late: float = LATE
    now: float = 0.0
    caller: Rights | None = None
    control_policies: list[str] = field(default_factory=list)
    instead: dict[str, str] = field(default_factory=dict)
    asked: list[Access] = field(default_factory=list)
    refused: list[Access] = field(default_factory=list)
    _history: dict[str, list[tuple[float, Rights]]] = field(default_factory=dict)

    def tick(self) -> None:
        """A call was made."""
        self.now += _SECONDS_A_CALL

    def settle(self) -> None:
        """Let so much time go by that all changes are known."""
        self.now += self.late

    def changed(self, call: Call) -> None:
        """Remember what a call on a role has changed, and when."""
        if call.service == "iam" and call.operation in _CHANGING:
            name = call.request["RoleName"]
            self._history.setdefault(name, []).append((self.now, self._rights(name)))
        elif str(call) == "iam:DeleteRole":
            self._history.pop(call.request["RoleName"], None)

    def exists(self, role: str) -> bool:
        """Whether services know already that there is that role."""
        history = self._history.get(role.rpartition("/")[2])
        return history is None or self.now >= history[0][0] + self.late / 2

    def may(self, access: Access, after: float = 0.0) -> bool:
        """Whether a role may do that so many seconds from now, by what is known then."""
        self.asked.append(access)
        rights = self._known(access.who.rpartition("/")[2], self.now + after)
        if rights is not None and not rights.refusal(access) and not self._is_forbidden(access):
            return True
        self.refused.append(access)
        return False

    def would(self, role: str, action: str, resource: str) -> bool:
        """Whether a role's policies allow it by themselves, as IAM's simulator tells at once."""
        return not self._rights(role.rpartition("/")[2]).refusal(Access(role, action, resource))

    def must_be_allowed(self, accesses: Iterator[Access]) -> None:
        """Raise AccessDenied when the caller may not do one of these."""
        for access in accesses if self.caller or self.control_policies else ():
            self.asked.append(access)
            why = self.caller.refusal(access) if self.caller else ""
            if self._is_forbidden(access):
                why = "with an explicit deny in a service control policy"
            if why:
                self.refused.append(access)
                words = why if why.startswith("with") else f"because {why}"
                message = f"User: {access.who} is not authorized to perform: {access.action} on resource: "
                raise ServiceError(f"{message}{access.resource} {words}", code="AccessDeniedException")

    def _known(self, name: str, moment: float) -> Rights | None:
        history = self._history.get(name)
        if history is None:
            return self._rights(name)
        known = [rights for since, rights in history if moment >= since + self.late]
        return known[-1] if known else None

    def _rights(self, name: str) -> Rights:
        role = _named(name)
        if role is None:
            return Rights(())
        managed = (_document(policy) for policy in role.managed_policies.values())
        documents = (*role.policies.values(), *managed)
        return Rights(tuple(self.instead.get(document, document) for document in documents), _boundary(role))

    def _is_forbidden(self, access: Access) -> bool:
        return any(not permits([policy], access) for policy in self.control_policies)


def role_of(arn: str) -> Role | None:
    """The role of that ARN."""
    roles = iam_backends[ACCOUNT][arn.split(":")[1]].roles.values()
    return next((role for role in roles if role.arn == arn), None)


def must_fit(call: Call) -> None:
    """Raise ServiceError when PutRolePolicy would give a role more than 10,240 characters of inline policies.

    IAM user guide, reference_iam-quotas: "IAM doesn't count white space". The words are AWS's.
    """
    name, put = call.request["RoleName"], {call.request["PolicyName"]: call.request["PolicyDocument"]}
    role = _named(name)
    policies = {**role.policies, **put} if role else put
    if sum(len("".join(document.split())) for document in policies.values()) > _MOST_INLINE:
        message = f"Maximum policy size of {_MOST_INLINE} bytes exceeded for role {name}"
        raise ServiceError(message, code="LimitExceeded")


def _named(name: str) -> Role | None:
    roles = (role for partition in ("aws", "aws-cn") for role in iam_backends[ACCOUNT][partition].roles.values())
    return next((role for role in roles if role.name == name), None)


def _boundary(role: Role) -> str | None:
    arn = role.permissions_boundary_arn
    return _document(iam_backends[ACCOUNT][arn.split(":")[1]].managed_policies[arn]) if arn else None


def _document(policy: Policy) -> str:
    document: str = next(version.document for version in policy.versions if version.is_default)
    return document
