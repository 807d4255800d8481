"""Whether an image can run, said before anything of it is sent: what it puts on its base against what the base holds.

    base: configuration, and its layers where packages are added ──┐
    packages: metadata, as pip tells it ───────────────────────────┴──> findings

Both are kept, so that `toolkit check` repeats the findings without a network once a build has looked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit import documents
from toolkit.findings import Finding, Severity
from toolkit.images.kept import kept_facts
from toolkit.images.wheels import Wheel, kept_wheels

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# A container's file system is mounted from a folder a layer; Docker has 125 of them at most ("max depth exceeded").
_MOST_LAYERS = 125

LENT = "lent"
"""The builder that an engine of this machine takes an image from: it puts it together as `append` does."""
PUT_TOGETHER = ("append", LENT)

_LAYERED = re.compile(r"^\s*(RUN|COPY|ADD)\s", re.M | re.I)
_RUNS = re.compile(r"^\s*RUN\s", re.M | re.I)
_USER = re.compile(r"^\s*USER\s+([^\s:]+)", re.M | re.I)
_MUSL_MINORS = range(6)


@dataclass(frozen=True)
class Distribution:
    """An installed package, and what it asks for in the words of its metadata."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class BaseFacts:
    """What a base holds.

    Fields:
        python: version of the `python3` on its PATH, `3.12`; None where there is none, empty where it is not known.
        libc: `glibc 2.34` or `musl`; empty where it has neither.
        has_env: it has /usr/bin/env, with which our programs begin.
        users: names in its /etc/passwd.
        distributions: the packages that this Python finds.
    """

    python: str | None
    libc: str
    has_env: bool
    users: tuple[str, ...]
    distributions: tuple[Distribution, ...]


@dataclass(frozen=True)
class Base:
    """A base image: layers, the instructions that it has for builds on it, and what it holds where that was read.

    Fields:
        is_packed_otherwise: it was to be read, and has layers packed in a way that is not read.
        has_zstd: a layer is packed with zstd.
    """

    name: str
    layers: int
    triggers: tuple[str, ...]
    holds: BaseFacts | None
    is_packed_otherwise: bool = False
    has_zstd: bool = False


@dataclass(frozen=True)
class Addition:
    """What is put on a base: packages for a Python, a Dockerfile's instructions, and whether it has large files."""

    wheels: tuple[str, ...]
    python: str
    builder: str
    dockerfile: str
    has_large_files: bool

    @property
    def layers(self) -> int:
        if self.builder in PUT_TOGETHER:
            return 2 if self.has_large_files else 1
        return 1 if self.builder == "buildah" else len(_LAYERED.findall(self.dockerfile))


def known_findings(digest: str, addition: Addition) -> Iterator[Finding]:
    """The findings on the base of that digest, as far as an earlier look is kept."""
    content = kept_facts(digest)
    wheels = kept_wheels(addition.wheels, addition.python)
    try:
        known = documents.parse(Base, content) if content else None
    except documents.Unfit:
        return
    if known and wheels is not None:
        yield from find(known, addition, wheels)


def find(base: Base, addition: Addition, wheels: Sequence[Wheel]) -> Iterator[Finding]:
    """All findings, the worst first."""
    yield from _of_layers(base, addition)
    if base.has_zstd and addition.builder == "append":
        message = f"{base.name} has layers packed with zstd, which `append` sends as they are, and SageMaker refuses"
        hint = "Push the base again with gzip layers; or, where it lies in another registry than yours, set "
        hint += "`container.builder` to buildah, which then packs them anew."
        yield Finding("base.zstd", message, "container.builder", hint=hint)
    if base.triggers and addition.builder == "append":
        message = f"{base.name} has ONBUILD instructions, which builder `append` cannot follow: "
        hint = "Set `container.builder` to docker, buildah or codebuild, which follow them."
        yield Finding("base.onbuild", message + "; ".join(base.triggers), "container.builder", hint=hint)
    if base.is_packed_otherwise:
        message = f"what {base.name} holds is not known: it has layers that are packed in a way that is not read"
        yield Finding("base.unread", message, "container.base", hint="", severity="info")
    if base.holds is None:
        return
    # What the recipe's own instructions install is not known.
    severity: Severity = "warning" if _RUNS.search(addition.dockerfile) else "error"
    yield from _of_programs(base, base.holds, addition, severity)
    yield from _of_wheels(base, base.holds, addition, wheels, severity)


def _of_layers(base: Base, addition: Addition) -> Iterator[Finding]:
    if (count := base.layers + addition.layers) > _MOST_LAYERS:
        message = f"{base.name} has {base.layers} layers, which makes {count} with ours: no container starts"
        hint = f"Build it anew with fewer ({_MOST_LAYERS} in all at most): podman build --squash-all, or fewer RUNs."
        yield Finding("base.layers", message, "container.base", hint=hint)


def _of_programs(base: Base, holds: BaseFacts, addition: Addition, severity: Severity) -> Iterator[Finding]:
    """What starts the container: /usr/bin/env python3, as the user that the image names."""
    if holds.python is None or not holds.has_env:
        missing = "python3 on its PATH" if holds.python is None else "/usr/bin/env"
        message = f"{base.name} has no {missing}, so its container would not start"
        hint = "Take a base with Python and coreutils."
        yield Finding("base.python", message, "container.base", hint=hint, severity=severity)
    elif not holds.python and addition.wheels:
        message = f"the version of Python of {base.name} is not known, and the wheels are for {addition.python}"
        hint = f"Check that it has Python {addition.python}, or write the version that it has into `container.python`."
        yield Finding("base.python", message, "container.python", hint=hint, severity="warning")
    elif addition.wheels and holds.python != addition.python:
        message = f"{base.name} has Python {holds.python}, and the wheels would be for {addition.python}"
        hint = f"Write `container: {{python: '{holds.python}'}}`."
        yield Finding("base.python", message, "container.python", hint=hint, severity=severity)
    users = [user for user in _USER.findall(addition.dockerfile) if not user.isdecimal() and "$" not in user]
    if users and users[-1] not in holds.users:
        message = f"{base.name} has no user {users[-1]}, whom the Dockerfile names"
        hint = "Name the user by a number."
        yield Finding("base.user", message, "container.dockerfile", hint=hint, severity=severity)


def _of_wheels(
    base: Base, holds: BaseFacts, addition: Addition, wheels: Sequence[Wheel], severity: Severity
) -> Iterator[Finding]:
    from packaging.utils import canonicalize_name

    there = {canonicalize_name(one.name): one.version for one in holds.distributions}
    ours = {canonicalize_name(wheel.name): wheel.version for wheel in wheels}
    needed: set[str] = set()  # in another version than the base's
    for wheel in wheels:
        if (fits := _fits(wheel.file, addition.python, holds.libc)) is not None:
            hint = (
                "Pin a version that has such a wheel, or build with docker, buildah or codebuild, which run commands."
            )
            message = f"{wheel.file} does not run on {base.name}, which has {fits}"
            yield Finding("base.wheel", message, "container.wheels", hint=hint, severity=severity)
        for asked in _requirements(wheel.requires, addition.python):
            name = canonicalize_name(asked.name)
            have = ours.get(name) or there.get(name)
            if name in there and not asked.specifier.contains(there[name], prereleases=True):
                needed.add(name)
            if have is None:
                message = (
                    f"{wheel.name} {wheel.version} asks for {_text(asked)}, which neither {base.name} nor a wheel has"
                )
                hint = f"Add {asked.name}==VERSION to `container.wheels`."
                yield Finding("base.requirement", message, "container.wheels", hint=hint, severity=severity)
            elif not asked.specifier.contains(have, prereleases=True):
                whose = "of the recipe" if name in ours else "of the base"
                message = f"{wheel.name} {wheel.version} asks for {_text(asked)}, and {asked.name} {whose} is {have}"
                hint = f"Take a version of {wheel.name} or {asked.name} in `container.wheels` that goes with the other."
                yield Finding("base.requirement", message, "container.wheels", hint=hint, severity="warning")
    for name in ours.keys() & there.keys():
        if ours[name] != there[name]:
            message = f"{name} {ours[name]} takes the place of the base's {there[name]}"
            message += _who_minds(name, ours[name], holds, addition.python)
            hint = f"Leave {name} out of `container.wheels`, if the base's version will do."
            if name in needed:
                hint = "A wheel needs it: see that what the base has runs with it, too."
            yield Finding("base.shadowed", message, "container.wheels", hint=hint, severity="warning")


def _who_minds(name: str, version: str, holds: BaseFacts, python: str) -> str:
    """Packages of the base that ask for another version."""
    from packaging.utils import canonicalize_name

    minds = [
        f"{one.name} {one.version} asks for {_text(asked)}"
        for one in holds.distributions
        for asked in _requirements(one.requires, python)
        if canonicalize_name(asked.name) == name and not asked.specifier.contains(version, prereleases=True)
    ]
    return f": {'; '.join(sorted(minds))}" if minds else ""


def _requirements(texts: Sequence[str], python: str) -> Iterator[Requirement]:
    """What holds on Linux x86-64 with that Python; words that are no requirement say nothing."""
    from packaging.requirements import InvalidRequirement, Requirement

    environment: dict[str, str] = {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    for text in texts:
        try:
            asked = Requirement(text)
        except InvalidRequirement:
            continue
        if asked.marker is None or asked.marker.evaluate(environment):
            yield asked


def _text(asked: Requirement) -> str:
    return f"{asked.name}{asked.specifier}"


def _fits(file: str, python: str, libc: str) -> str | None:
    """None for a wheel that runs with that C library, else what there is in place of what it asks for."""
    from packaging.tags import compatible_tags, cpython_tags
    from packaging.utils import parse_wheel_filename

    family, _, version = libc.partition(" ")
    if family == "glibc":
        minor = int(version.partition(".")[2])
        platforms = [f"manylinux_2_{number}_x86_64" for number in range(5, minor + 1)]
        platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    else:
        platforms = [f"musllinux_1_{number}_x86_64" for number in _MUSL_MINORS] if family else []
    major_minor = tuple(map(int, python.split(".")))
    known = {*cpython_tags(major_minor, platforms=platforms), *compatible_tags(major_minor, platforms=platforms)}
    return None if known & parse_wheel_filename(file)[3] else libc or "no C library"
