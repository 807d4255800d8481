"""What is taken for a secret in a setting, and what is not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toolkit.catalog import lookup
from toolkit.recipe.known import catalogue, catalogue_dir
from toolkit.recipe.load import plain_yaml
from toolkit.secret_values import secret_keys, without_secrets

HEX = "0123456789abcdef"
RANDOM = "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPa3Key9"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "MY_PWD", "APP_PASSWD", "PGPASSWORD", "DB_PASS", "REDIS_AUTH", "AWS_SECRET_ACCESS_KEY", "api-key",
     "WANDB_API_KEY", "dbPassword", "authToken", "TOKEN_2", "MY_SECRET_VALUE", "passphrase"],
)  # fmt: skip
def test_by_name(name: str) -> None:
    assert [*secret_keys(name, "hunter2")] == [name]
    assert not [*secret_keys(name, "true")]


@pytest.mark.parametrize(
    "value",
    [
        "postgres://user:password@host", "redis://:hunter2@cache:6379/0", "https://u:p%40w/d@host/x", "amqp://u:1234@h",
        "https://abcdef0123456789@o1.ingest.example/4",
        "AKIAIOSFODNN7EXAMPLE", f"hf_{'aB3' * 11}", f"sk-{'a1B2' * 6}", f"sk-proj-{'a_b-' * 6}", f"ghp_{'a1B' * 12}",
        f"github_pat_{'a1B_' * 8}", "xoxb-123456789012-abcdef", f"eyJ{'a' * 20}.eyJ{'b' * 20}.{'c' * 20}",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "host=db user=me password=hunter2", "https://x/y?sig=1&access_token=abcd",
        f"Authorization: Bearer {'a1b2' * 5}", RANDOM,
    ],
)  # fmt: skip
def test_by_value(value: str) -> None:
    assert [*secret_keys("PLAIN", value)] == ["PLAIN"]
    assert [*secret_keys("plain", {"of": [{"it": value}]})] == ["plain.of.0.it"]
    shown = without_secrets(f"kept {value}")
    assert not any(
        word in shown for word in re.split(r"[\s:@/&=]+", value) if len(word) > 8 and any(map(str.isdigit, word))
    )
    assert "password@" not in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("form", [json.dumps, dict])
def test_within_json(form: Any) -> None:
    inside = {"kv_connector": "X", "kv_connector_extra_config": {"password": "hunter2", "port": 5}}
    assert [*secret_keys("kv-transfer-config", form(inside))] == [
        "kv-transfer-config.kv_connector_extra_config.password"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("digest", f"sha256:{HEX * 4}"), ("revision", (HEX * 3)[:40]), ("data", "s3://bucket/prefix/A1b2C3d4/x@y/"),
        ("image", f"123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:0.30.0@sha256:{HEX * 4}"),
        ("image", "localhost:5000/vllm/vllm-openai:v0.31.0"), ("model", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
        ("model", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"), ("model", "RedHatAI/Qwen3-8B-speculator.eagle3"),
        ("PROXY", "http://proxy:8080/a"), ("REPO", "ssh://git@github.com/x/y"),
        ("USER", "sftp://deployment-of-models@host/x"), ("URL", "postgres://user:$PW@host/db"),
        ("PWD", "/opt/ml"), ("max-num-batched-tokens", 8192), ("TOKENIZERS_PARALLELISM", "false"), ("tokenizer", "a/b"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"), ("hf-token", True), ("chat-template-kwargs", {"bos_token": "<s>"}),
        ("hf-overrides", '{"image_token": "<|image|>", "eos_token_id": 2}'), ("VLLM_CACHE_ROOT", "/opt/ml/model/A1"),
        ("chat-template", "{{ bos_token }}{% for m in messages %}"), ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("kv-transfer-config", {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}),
        ("LONG", "ThisIsAVeryLongNameOfAnArchitectureForCausalLM2"), ("UUID", "3f2b8c1e-9d4a-4f6b-8a7c-1e2d3c4b5a69"),
    ],
)  # fmt: skip
def test_no_false_alarm(name: str, value: Any) -> None:
    assert not [*secret_keys(name, value)]


def test_none_in_the_recipes_that_come_with_the_toolkit() -> None:
    engines = {name: plain_yaml((catalogue_dir() / f"{name}.yaml").read_text()).get("engine") for name in catalogue()}
    assert any(engines.values())
    assert {name: found for name, engine in engines.items() if (found := [*secret_keys("", engine)])} == {}


def test_none_in_the_facts_of_the_catalogue() -> None:
    for file in ("models.json", "heads.json", "images.json"):
        assert not [*secret_keys("", lookup.read(file))]


def test_a_long_text_is_looked_through_in_time() -> None:
    """Each address in it could begin the next: with a pattern that tries all, it took hours."""
    assert not list(secret_keys("chat-template", "a://" * 2_000))
