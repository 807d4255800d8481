"""Take a recipe's image into the store of podman or docker: the image that a push to a registry would send.

spec ──> put together as for a push ──> pulled from us ──> localhost/toolkit/<name>:<tag>
"""

from __future__ import annotations

from toolkit.errors import BuildError
from toolkit.images.append import composed
from toolkit.images.base import require_runnable
from toolkit.images.buildah import BUILD_OPTIONS, access
from toolkit.images.command import Log, build_arguments, build_context, build_failure, last_words, run
from toolkit.images.copy import find_image, parts_of
from toolkit.images.docker import logged_in
from toolkit.images.docker_config import engine_credentials
from toolkit.images.loan import Loan, lend
from toolkit.images.manifest import as_it_is_packed
from toolkit.images.preflight import LENT
from toolkit.images.reference import Reference, is_loopback, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec
from toolkit.platforms.local.engine import engine, holds

_ROOM = "Free disk space where images are stored (podman image prune, docker image prune)."


def take(spec: ImageSpec, image: str, log: Log, say: Log) -> None:
    """Have it under that name, unless it is there: its tag says its content. Raises PlatformError.

    What a push would send is put together in the same way and pulled. Only instructions, the user's own or those that
    the base has for builds on it, and a base that is in no registry, take a build here; that of podman has the same
    layers as the one that is pushed.
    """
    if holds(image):
        return
    program, source = engine(), parse(spec.base)
    takes_build = spec.needs_run or source.registry == "localhost" or _has_triggers(source)
    require_runnable(spec, "buildah" if takes_build else LENT, _connect, log, say)
    if takes_build:
        _build(program, spec, image, log)
        return
    with _connect(source.registry) as origin, composed(spec, origin, log, manifest_of=as_it_is_packed) as made:
        parts = [*made.own, *parts_of(made.base.parts.layers, origin, source, origin)]
        with lend(made.manifest, parts) as lent:
            _pull(program, lent, image, log)


def _has_triggers(base: Reference) -> bool:
    with _connect(base.registry) as registry:
        return bool((find_image(registry, base).config.get("config") or {}).get("OnBuild"))


def _connect(host: str) -> Registry:
    return Registry(host, engine_credentials)


def _pull(program: str, lent: Loan, image: str, log: Log) -> None:
    """Pull what is lent, and name it."""
    reference = parse(lent.reference)
    if program == "podman":
        with access(lent.credentials, reference) as options:
            ended = run([program, "pull", *options, lent.reference], log)
    else:
        with logged_in(lent.credentials, reference) as folder:
            ended = run([program, "pull", lent.reference], log, {"DOCKER_CONFIG": str(folder)})
    if lent.failure:
        raise lent.failure
    if ended.code:
        words = last_words(ended)
        raise BuildError(f"{program} cannot take the image: {words}", hint=_ROOM if "space" in words else "")
    named = run([program, "tag", lent.reference, image])
    run([program, "rmi", lent.reference])  # the name only
    if named.code:
        raise BuildError(f"{program} cannot name the image {image}: {last_words(named)}")


def _build(program: str, spec: ImageSpec, image: str, log: Log) -> None:
    plain = ["--tls-verify=false"] if program == "podman" and is_loopback(parse(spec.base).registry) else []
    same = BUILD_OPTIONS if program == "podman" else []
    with build_context(spec) as context:
        options = [*build_arguments(spec), "--tag", image, "--file", str(context / "Dockerfile")]
        ended = run([program, "build", *plain, *same, *options, str(context)], log, {"DOCKER_BUILDKIT": "0"})
    if ended.code:
        raise build_failure(program, ended, spec.base, _ROOM)
