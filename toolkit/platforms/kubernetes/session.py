"""Open a cluster from a kubeconfig, or from within."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.errors import AmbiguousEndpoint, MissingPackage, PlatformError, UsageError
from toolkit.home import user_home
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.kubernetes.keys import KubernetesSection, cluster
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.kubernetes.platform import KubernetesPlatform
    from toolkit.platforms.rules import AwsSession

DEFAULT_NAMESPACE = "toolkit"
IN_CLUSTER = "in-cluster"
_MOST_BYTES = 4 * 1024**2
# The official client takes for granted that it is YAML, and a mapping of mappings.
_MISREAD = (OSError, ValueError, TypeError, AttributeError, LookupError)
_IN_POD = "KUBERNETES_SERVICE_HOST"


class KubernetesSession:
    """The cluster of a kubeconfig; a scope is `context/namespace`, an empty context the current one."""

    account_name = "a kubeconfig"
    unasked = ""
    may_be_absent = True
    is_this_machine = False

    def logged_in(self, login: AwsSession) -> KubernetesSession:
        """Raises UsageError: a kubeconfig says who one is."""
        hint = "Leave out `session`: the kubeconfig says which cluster, and who you are."
        raise UsageError("session: a cluster needs no AWS session", hint=hint)

    def scope(self, recipe: Recipe) -> str:
        settings = cluster(recipe) or KubernetesSection()
        return f"{settings.context or ''}/{settings.namespace}"

    def scope_name(self, scope: str) -> str:
        return scope

    def can_be_asked(self) -> bool:
        return bool(_kubeconfig()) or _IN_POD in os.environ

    def open(self, scope: str | None = None) -> KubernetesPlatform:
        """The platform of `context/namespace`; by default the current context and namespace `toolkit`.

        Without a namespace its list of endpoints is that of all namespaces.

        Raises UsageError for a missing package, kubeconfig or context, PlatformError for a kubeconfig that is none.
        """
        try:
            from kubernetes.client import ApiClient, Configuration, rest
            from kubernetes.config import ConfigException, kube_config, load_incluster_config
        except ImportError as error:
            raise MissingPackage("the kubernetes package is not installed", extra="kubernetes") from error
        from toolkit.platforms.kubernetes.cluster import Cluster
        from toolkit.platforms.kubernetes.platform import KubernetesPlatform

        # A context's name may have slashes (EKS takes the cluster's ARN), a namespace's may not.
        context, _, namespace = (scope or "").rpartition("/")
        settings, files, proxy = Configuration(), _kubeconfig(), None
        try:
            if files:
                _require_small(files)
                merged = kube_config.KubeConfigMerger(files)
                written = merged.config.value
                # The first file's, as kubectl has it; the client takes the last one's.
                current = (file.get("current-context") for file in merged.config_files.values())
                context = context or next(filter(None, current), "")
                _require_context(context, [item["name"] for item in written["contexts"]])
                kube_config.load_kube_config(files, context, settings, persist_config=False)
                if proxy := _proxy(written, context):  # which the client does not read; it goes before NO_PROXY
                    settings.proxy, settings.no_proxy = proxy, ""
            elif _IN_POD in os.environ:
                _require_our_own(context)
                load_incluster_config(settings)
                context = IN_CLUSTER
            else:
                hint = "Create one, for EKS: aws eks update-kubeconfig --name CLUSTER. Or set KUBECONFIG."
                raise UsageError("no kubeconfig was found, and this is not a pod", hint=hint)
            if settings.proxy and not rest.should_bypass_proxies(settings.host, settings.no_proxy or ""):
                settings.proxy = _http_proxy(settings.proxy)
            client = ApiClient(settings)
        except (ConfigException, kube_config.yaml.YAMLError, RecursionError, *_MISREAD) as error:
            hint = f"See: kubectl config view. The files are {files}."
            raise PlatformError(f"cannot use the kubeconfig: {error}", hint=hint) from error
        own_proxy = settings.proxy if proxy else None
        place = Cluster(client, context, namespace or DEFAULT_NAMESPACE, proxy=own_proxy)
        return KubernetesPlatform(place, lists_all=not namespace)

    running = glance = trainer = open

    def scope_of(self, endpoint: str) -> str | None:
        """The only namespace of the current context with such an endpoint; None where there is none.

        Raises AmbiguousEndpoint, UsageError or PlatformError.
        """
        scopes = [item.region for item in self.open().endpoints() if item.name == endpoint]
        if len(scopes) > 1:
            hint = (
                "Pass the recipe instead of the name. "
                "In Python: toolkit.connect(NAME, region='CONTEXT/NAMESPACE', ...)."
            )
            raise AmbiguousEndpoint(f"{endpoint} exists in several namespaces: {', '.join(scopes)}", hint=hint)
        return scopes[0] if scopes else None

    def every_scope(self) -> Sequence[str | None]:
        return [None]

    def unread_account(self, scope: str | None) -> Account:
        return Account(NO_ACCOUNT, "", scope=scope or "")

    def cleaner(self, scope: str | None) -> None:
        return


SESSION = KubernetesSession()


def _kubeconfig() -> str:
    """The kubeconfig files that exist, as KUBECONFIG has them; empty when there is none."""
    names = os.environ.get("KUBECONFIG") or str(user_home() / ".kube" / "config")
    # `Path.is_file` raises PermissionError where the home is somebody else's, before Python 3.14.
    return os.pathsep.join(name for name in names.split(os.pathsep) if os.path.isfile(Path(name).expanduser()))  # noqa: PTH113


def _require_small(files: str) -> None:
    """Raise ValueError for a file that is larger than any kubeconfig."""
    for name in files.split(os.pathsep):
        if Path(name).expanduser().stat().st_size > _MOST_BYTES:
            raise ValueError(f"{name} is larger than {_MOST_BYTES} bytes")


def _proxy(written: Mapping[str, Any], context: str) -> str | None:
    """The `proxy-url` of the context's cluster."""
    name = next(item["context"]["cluster"] for item in written["contexts"] if item["name"] == context)
    found = (item["cluster"] for item in written["clusters"] if item["name"] == name)
    return next((cluster["proxy-url"] for cluster in found if "proxy-url" in cluster), None)


def _http_proxy(proxy: str) -> str:
    """Its address, which may be written without a scheme, as kubectl takes it. Raises UsageError for another kind."""
    if "://" not in proxy:
        return f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        message = f"the proxy of the cluster is one of {proxy.partition(':')[0]}, and only HTTP proxies are supported"
        hint = (
            "Name an HTTP proxy as `proxy-url` in the kubeconfig, or in HTTPS_PROXY; or run `kubectl proxy`, and use a "
            "context whose server is http://127.0.0.1:8001, with NO_PROXY=127.0.0.1."
        )
        raise UsageError(message, hint=hint)
    return proxy


def _require_context(context: str, known: list[str]) -> None:
    if context not in known:
        what = f"context `{context}`" if context else "current context"
        hint = f"Set platform.kubernetes.context to one of: {', '.join(known) or 'none is there'}."
        raise UsageError(f"the kubeconfig has no {what}", hint=hint)


def _require_our_own(context: str) -> None:
    if context not in ("", IN_CLUSTER):
        hint = "Mount a kubeconfig and set KUBECONFIG, or leave out platform.kubernetes.context."
        raise UsageError(f"there is no kubeconfig, and so no context `{context}` but this pod's own cluster", hint=hint)
