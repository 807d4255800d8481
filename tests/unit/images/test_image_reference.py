"""Names of images, as users write them."""

from __future__ import annotations

import pytest

from toolkit.errors import UsageError
from toolkit.images.reference import Reference, is_loopback, parse

DIGEST = "sha256:" + "0a" * 32
ECR = "763104351884.dkr.ecr.us-west-2.amazonaws.com"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ubuntu", Reference("docker.io", "library/ubuntu")),
        ("ubuntu:22.04", Reference("docker.io", "library/ubuntu", "22.04")),
        ("vllm/vllm-openai:v0.33.0", Reference("docker.io", "vllm/vllm-openai", "v0.33.0")),
        ("docker.io/ubuntu", Reference("docker.io", "library/ubuntu")),
        ("index.docker.io/vllm/x", Reference("docker.io", "vllm/x")),
        (f"{ECR}/vllm:server-sagemaker-cuda-v1", Reference(ECR, "vllm", "server-sagemaker-cuda-v1")),
        (f"{ECR}/vllm:a@{DIGEST}", Reference(ECR, "vllm", "a", DIGEST)),
        (f"public.ecr.aws/a/b/c@{DIGEST}", Reference("public.ecr.aws", "a/b/c", None, DIGEST)),
        ("localhost/a", Reference("localhost", "a")),
        ("127.0.0.1:5000/a__b/c.d-e:1", Reference("127.0.0.1:5000", "a__b/c.d-e", "1")),
        ("[::1]:5000/a", Reference("[::1]:5000", "a")),
    ],
)
def test_parsed(text: str, expected: Reference) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Upper/case",
        "a:b:c",
        "a b",
        "a@sha256:12",
        "ghcr.io/",
        "ghcr.io/A",
        "https://ghcr.io/a",
        "a/",
        "a..b",
        "a:" + "t" * 129,
    ],
)
def test_what_is_no_name_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not an image reference") as caught:
        parse(text)
    assert "registry/repository:tag" in caught.value.hint


def test_a_digest_goes_before_a_tag() -> None:
    assert parse(f"a:1@{DIGEST}").selector == DIGEST
    assert parse("a:1").selector == "1"
    assert parse("a").selector == "latest"


@pytest.mark.parametrize("text", ["a:1", f"{ECR}/vllm:a@{DIGEST}"])
def test_written_whole_it_means_the_same(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("registry", "loopback"),
    [("localhost:5000", True), ("127.0.0.1", True), ("[::1]:80", True), ("127.0.0.1.evil.com", False), (ECR, False)],
)
def test_only_this_machine_is_asked_without_tls(registry: str, loopback: bool) -> None:
    assert is_loopback(registry) is loopback
