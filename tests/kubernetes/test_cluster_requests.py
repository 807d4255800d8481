"""Asking an endpoint through the API server: chats, OpenAI's client, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import answer_events, event_stream
from kubernetes.client import ApiException
from limited import limited
from manifests import NAME, deployment, endpoint, namespace, placed, service
from real_server import TOKEN
from recorded import recorded
from scripted_http import Reply, scripted
from scripted_node import ScriptedNode
from waiting import until

from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import wait_in_service
from toolkit.endpoint.metrics import Percentiles
from toolkit.endpoint.prometheus import parse, quantile
from toolkit.endpoint.refusal import ErrorAnswer
from toolkit.errors import EndpointNotFound, InvocationError, PlatformError
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.runtime import proxy

ANSWER = event_stream(answer_events([5, 6, 7], histogram=[1, 1]))


def put(platform: KubernetesPlatform, *desired: Resource) -> None:
    for item in placed(desired, platform.cluster.namespace):
        platform.cluster.apply(path(item.kind, platform.cluster.namespace, item.name), item.request)


@pytest.fixture
def serving(answering: ScriptedNode, platform: KubernetesPlatform) -> KubernetesPlatform:
    put(platform, *endpoint())
    wait_in_service(platform, {NAME: "aaaa"}, Silent(), 60, sleep=platform.sleep)
    until(lambda: has_endpoints(platform))
    return platform


def has_endpoints(platform: KubernetesPlatform) -> bool:
    """Whether the cluster's Service leads somewhere, which comes a moment after the pod is ready."""
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{platform.cluster.namespace}/endpointslices"
    return any(found.get("endpoints") for found in platform.cluster.items(slices, {}))


def proxied(platform: KubernetesPlatform) -> int:
    """What the API server answers for the Service, of which it learns a moment after it is there."""
    try:
        platform.cluster.call("GET", proxy(platform.cluster, NAME))
    except ApiException as error:
        return int(error.status)
    return 200


def handle(platform: KubernetesPlatform) -> Endpoint:
    def destroyer(_: str) -> None:
        raise AssertionError("nothing is to be destroyed")

    return Endpoint(NAME, platform, destroyer=destroyer)  # type: ignore[arg-type]


def test_a_chat_goes_to_the_container(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(parts=[ANSWER[:40], ANSWER[40:]])) as container:
        answering.backend = container.url
        answer = handle(serving).chat("hello")
    assert (answer.text, answer.token_ids) == ("<5><6><7>", (5, 6, 7))
    assert container.requests[0].path == "/invocations"


def test_the_container_gets_no_credentials(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(parts=[ANSWER])) as container:
        answering.backend = container.url
        handle(serving).chat("hello")
    assert "authorization" not in container.requests[0].headers


def test_a_whole_answer_is_read(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(parts=[b'{"choices": []}'])) as container:
        answering.backend = container.url
        assert serving.invoke(NAME, {"prompt": [1]}) == {"choices": []}


def test_openai_s_client_is_let_in(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(parts=[b'{"id": "1", "choices": [], "object": "chat.completion"}'])) as container:
        answering.backend = container.url
        with handle(serving).openai() as client:
            client.chat.completions.create(model="", messages=[{"role": "user", "content": "hello"}])
    assert container.requests[0].path == "/v1/chat/completions"
    assert serving.openai_access(NAME).token() == TOKEN


def test_what_the_container_refuses_is_its_own_word(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(400, [b'{"error": {"message": "max_tokens is too large"}}'])) as container:
        answering.backend = container.url
        with pytest.raises(InvocationError, match="chat: answered 400: max_tokens is too large") as error:
            serving.invoke(NAME, {})
    assert error.value.hint.startswith("Correct the request")


def test_an_answer_that_breaks_off_is_told(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    with scripted(Reply(parts=[ANSWER[:40]], cut=True)) as container:
        answering.backend = container.url
        with pytest.raises(InvocationError, match="broke off"):
            handle(serving).chat("hello")


def test_without_a_ready_pod_it_is_asked_four_times(kubelet: ScriptedNode, platform: KubernetesPlatform) -> None:
    kubelet.script = ()
    put(platform, namespace(), service(), deployment())
    until(lambda: proxied(platform) != 404)
    recording, cluster = recorded(platform)
    with pytest.raises(InvocationError, match="no endpoints available for service") as error:
        recording.invoke(NAME, {})
    assert len(cluster.sent) == 4
    assert error.value.transient
    assert "None of its pods is ready" in error.value.hint


def test_a_way_to_the_pods_that_is_closed_is_told_as_that(serving: KubernetesPlatform) -> None:
    """They are ready, but the API server does not reach them; nothing is behind their address."""
    asks = (lambda: serving.invoke(NAME, {}), lambda: serving.metrics(NAME, 10))
    for ask in asks:
        with pytest.raises(PlatformError, match="error trying to reach service") as error:
            ask()
        assert "must let the cluster's in at TCP 8080" in error.value.hint
        assert "kubectl port-forward" in error.value.hint


def test_an_endpoint_that_is_not_there_is_not_found(serving: KubernetesPlatform) -> None:
    with pytest.raises(EndpointNotFound):
        serving.invoke("nobody", {})


def test_the_right_to_ask_is_told_with_its_rule(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    put(platform, namespace(), service())
    with (
        limited(platform, kubeconfig, ("create", "services/proxy")) as theirs,
        pytest.raises(InvocationError, match="forbidden") as error,
    ):
        theirs.invoke(NAME, {})
    assert 'resources: ["services/proxy"]' in error.value.hint


def test_on_the_openai_route_too(platform: KubernetesPlatform, kubeconfig: Path) -> None:
    put(platform, *endpoint())
    with (
        limited(platform, kubeconfig, ("create", "services/proxy")) as theirs,
        pytest.raises(InvocationError, match="forbidden") as error,
    ):
        handle(theirs).chat("hello", via="openai")
    assert 'resources: ["services/proxy"]' in error.value.hint
    assert "sagemaker:" not in str(error.value)


def test_who_is_not_known_logs_in_again(platform: KubernetesPlatform) -> None:
    answer = ErrorAnswer(401, '{"kind": "Status", "message": "Unauthorized"}')
    error = platform.openai_access(NAME).explain(NAME, answer)
    assert str(error).startswith("chat: Unauthorized\n  Log in again; for EKS")


def test_who_is_anonymous_logs_in_again(platform: KubernetesPlatform) -> None:
    platform.cluster.client.configuration.api_key.clear()
    with pytest.raises(InvocationError, match='User "system:anonymous" cannot create') as error:
        platform.invoke(NAME, {})
    assert error.value.hint.startswith("Log in again; for EKS")


def test_the_container_s_own_error_comes_through_the_openai_route(
    answering: ScriptedNode, serving: KubernetesPlatform
) -> None:
    with scripted(Reply(400, [b'{"error": {"message": "max_tokens is too large"}}'])) as container:
        answering.backend = container.url
        with pytest.raises(InvocationError, match="chat: answered 400: max_tokens is too large"):
            handle(serving).chat("hello", via="openai")


PAGE = """# HELP http_requests_total Total number of requests by method, status and handler.
# TYPE http_requests_total counter
http_requests_total{handler="/invocations",method="POST",status="2xx"} 8.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="4xx"} 2.0
http_requests_total{handler="/ping",method="GET",status="2xx"} 900.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0",model_name="m"} 5.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="2.0",model_name="m"} 10.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 20.0
"""


def page(text: str) -> Reply:
    return Reply(parts=[text.encode(errors="surrogateescape")])


def test_metrics_are_the_sum_of_all_pods(answering: ScriptedNode, platform: KubernetesPlatform) -> None:
    put(platform, namespace(), deployment(replicas=2))
    wait_in_service(platform, {NAME: "aaaa"}, Silent(), 60, sleep=platform.sleep)
    with scripted(page(PAGE)) as container:
        answering.backend = container.url
        metrics = handle(platform).metrics(10)
    assert (metrics.invocations, metrics.client_errors, metrics.server_errors) == (20, 4, 0)
    assert metrics.model_latency == Percentiles(1.0, 1.98)
    assert (metrics.engine.acceptance_length, metrics.engine.acceptance_rate) == (3.0, 0.5)
    assert metrics.notes[0].startswith("Counted since the start of 2 containers, not over 10 minutes")


def test_without_a_ready_pod_there_are_no_metrics(platform: KubernetesPlatform) -> None:
    put(platform, namespace(), deployment(replicas=0))
    with pytest.raises(PlatformError, match=f"no container of {NAME} is ready"):
        handle(platform).metrics(10)


@pytest.mark.parametrize(
    ("share", "buckets", "expected"),
    [
        (0.5, {}, None),
        (0.5, {1.0: 0.0, float("inf"): 0.0}, None),
        (0.5, {1.0: 4.0, 3.0: 8.0, float("inf"): 8.0}, 1.0),
        (0.75, {1.0: 4.0, 3.0: 8.0, float("inf"): 8.0}, 2.0),
        (0.99, {1.0: 4.0, 3.0: 4.0, float("inf"): 8.0}, 3.0),
    ],
)
def test_a_quantile_is_prometheus_own(share: float, buckets: dict[float, float], expected: float | None) -> None:
    """histogram_quantile: linear in its bucket, and the last bound for what is beyond it."""
    assert quantile(share, buckets) == expected


def test_labels_may_have_commas_and_quotes() -> None:
    (sample,) = parse(b'm{a="x,y",b="say \\"hi\\""} 1.5 1700000000', "pod p")
    assert (sample.labels, sample.value) == ({"a": "x,y", "b": 'say "hi"'}, 1.5)


@pytest.mark.parametrize("text", ["<html>log in</html>", PAGE + 'm{a="cut', "m one", "\udcff"])
def test_a_page_that_is_none_of_prometheus_names_its_pod(
    answering: ScriptedNode, serving: KubernetesPlatform, text: str
) -> None:
    with scripted(page(text)) as container:
        answering.backend = container.url
        with pytest.raises(PlatformError, match=rf"/metrics of pod {NAME}-\S+ is not in Prometheus' text format"):
            serving.metrics(NAME, 10)


def test_what_is_no_count_is_left_out(answering: ScriptedNode, serving: KubernetesPlatform) -> None:
    counts = ("NaN", "+Inf", "-1", "1" * 400, "3.0")
    requests = [f'http_requests_total{{handler="/invocations",status="2xx",n="{n}"}} {n}' for n in counts]
    latencies = [f'vllm:e2e_request_latency_seconds_bucket{{le="{le}"}} 4' for le in ("0.5", "+Inf", "none")]
    text = "\n".join([*requests, *latencies, "vllm:e2e_request_latency_seconds_bucket 9"])
    with scripted(page(text)) as container:
        answering.backend = container.url
        metrics = serving.metrics(NAME, 10)
    assert (metrics.invocations, metrics.model_latency) == (3, Percentiles(0.25, 0.495))
