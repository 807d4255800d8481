"""What vLLM says where it refuses settings, read in its source, as causes that `explain` knows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import toolkit
from tools.catalogue import requests
from tools.catalogue.libraries import with_libraries
from tools.catalogue.refusals import FILE, as_text, read_refusals, with_version

PARALLEL = """
class ParallelConfig:
    def _validate(self):
        raise ValueError(f"data_parallel_size_local ({self.a}) must be <= data_parallel_size ({self.b})")

    def world(self):
        raise ValueError("some_name was not set by the engine")
"""
LORA = """
def load(name, rank):
    error_msg.append(f"LoRA rank {rank} is greater than max_lora_rank {name}.")
    names.append("some_name is no error of any kind")
    raise ValueError(f"{name} is unsupported LoRA weight")
    raise ValueError("Missing required fields: ")
    raise ValueError(name)
"""
PARSERS = """
class ToolParserManager:
    def get_tool_parser(cls, name):
        raise KeyError(f"Tool parser '{name}' not found.")
"""
QUANTIZATION = """
def apply(layer):
    raise NotImplementedError(f"{layer} has no scheme for FP8 weights of compressed-tensors.")
    raise ValueError("num_tokens must be positive")
    assert layer, "FP8 weights of compressed-tensors were to be prepared before."
"""
LOADER = """
def load(name):
    raise ValueError(f"Checkpoint weight {name} is not in any shard.")
    raise ValueError(f"Load format {name} is not supported here.")
    raise ValueError("BitsAndBytes weights with tensor parallelism is not supported")
"""
IMAGES = """
def encode():
    raise ValueError("You cannot encode images of that kind here.")
    raise ValueError("You cannot encode text when `skip_tokenizer_init=True`.")
"""
SETTINGS = """
def create_engine_config():
    assert False, "--third-flag must be given with --other-flag."
    raise TypeError("--one-flag is not supported with --other-flag at all. Remove one of the two." "More.")
"""


REQUESTS = """
def create(request):
    return self.create_error_response(message=f"Field {request} of `messages` must be a list.")
    raise ValueError(f"{request}=")
    raise ValueError("Unknown message type: nothing of a field.")
    raise ValueError(f"`{request}` must be an integer.")
    raise ValueError("Please install vllm[audio] to read the request's audio.")
    logger.error("No request's `messages` are an error.")
"""


def package(folder: Path) -> Path:
    files = {"config/parallel.py": PARALLEL, "lora/utils.py": LORA, "engine/arg_utils.py": SETTINGS}
    files |= {"model_executor/model_loader/loader.py": LOADER, "multimodal/images.py": IMAGES}
    files["tool_parsers/abstract_tool_parser.py"] = PARSERS
    files["model_executor/layers/quantization/scheme.py"] = QUANTIZATION
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_texts_are_read_without_importing_them(tmp_path: Path) -> None:
    assert read_refusals(package(tmp_path)) == {
        "parallel": {
            r"data_parallel_size_local \(.*\) must be <= data_parallel_size \(.*\)",
            "BitsAndBytes weights with tensor parallelism is not supported",
        },
        "scheduler": set(),
        "lora": {r"LoRA rank .* is greater than max_lora_rank", "is unsupported LoRA weight"},
        "speculation": set(),
        "flag-value": {"Tool parser '.*' not found"},
        "quantization": {r"has no scheme for FP8 weights of compressed\-tensors"},
        "attention-backend": set(),
        "multimodal": {"You cannot encode images of that kind here"},
        "kv-transfer": set(),
        "tensors": {"Checkpoint weight .* is not in any shard"},
        "torch-compile": set(),
        "kv-groups": set(),
        "model-config": set(),
        "settings": {
            r"\-\-one\-flag is not supported with \-\-other\-flag at all",
            r"\-\-third\-flag must be given with \-\-other\-flag",
            "Load format .* is not supported here",
        },
    }


def test_a_version_is_added_to_what_others_say(tmp_path: Path) -> None:
    codes = (
        "parallel",
        "scheduler",
        "lora",
        "speculation",
        "flag-value",
        "quantization",
        "attention-backend",
        "settings",
    )
    shipped = {"versions": ["0.9.0"], "log": [{"code": c, "words": ["old"], "hint": "do", "rank": 1} for c in codes]}
    made = json.loads(as_text(with_version(shipped, "0.10.0", read_refusals(package(tmp_path)))))
    assert made["versions"] == ["0.9.0", "0.10.0"]
    assert [len(cause["words"]) for cause in made["log"] if cause["rank"] == 1] == [3, 1, 3, 1, 2, 2, 1, 4]
    assert with_version(made, "0.10.0", read_refusals(tmp_path)) == made


def test_the_file_has_what_the_installed_version_says() -> None:
    vllm = pytest.importorskip("vllm")
    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    words = {cause["code"]: set(cause["words"]) for cause in shipped["log"]}
    assert vllm.__version__.partition("+")[0] in shipped["versions"]
    for code, found in read_refusals(Path(vllm.__file__).parent).items():
        assert found <= words[code]
        assert found


def test_each_refusal_is_named_by_what_it_says() -> None:
    """With something in the place of what is filled in; a hand-written cause may know more."""
    for file in (FILE, FILE.with_name("libraries.json")):
        for cause in json.loads(file.read_text(encoding="utf-8"))["log"]:
            for words in cause["words"]:
                said = re.sub(r"\\(.)", r"\1", words.replace(".*", "17"))
                assert toolkit.explain(f"ValueError: {said}").cause, said


def test_refusals_of_requests_are_read_where_requests_are(tmp_path: Path) -> None:
    for name in ("entrypoints/openai/serving_chat.py", "entrypoints/cli/serve.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(REQUESTS if "openai" in name else REQUESTS.replace("Field", "Flag"))
    found = requests.read_requests(tmp_path)
    assert found == {"Field .* of `messages` must be a list"}
    shipped = {"versions": ["0.9.0"], "requests": [{"code": "request-refused", "words": ["old"]}]}
    made = requests.with_version(shipped, "0.10.0", found)
    assert made["versions"] == ["0.9.0", "0.10.0"]
    assert len(made["requests"][0]["words"]) == 2


def test_the_file_of_requests_has_what_the_installed_version_says() -> None:
    vllm = pytest.importorskip("vllm")
    shipped = json.loads(requests.FILE.read_text(encoding="utf-8"))
    words = set(shipped["requests"][0]["words"])
    assert words.isdisjoint(text for cause in json.loads(FILE.read_text())["log"] for text in cause["words"])
    assert vllm.__version__.partition("+")[0] in shipped["versions"]
    assert requests.read_requests(Path(vllm.__file__).parent) <= words
    for text in words:
        said = re.sub(r"\\(.)", r"\1", text.replace(".*", "17"))
        assert toolkit.explain(f"BadRequestError: {said}").cause, said


def test_code_that_moved_between_files_keeps_its_cause() -> None:
    shipped = {"versions": [], "log": [{"code": "lora", "words": ["moved"]}, {"code": "settings", "words": []}]}
    made = with_version(shipped, "0.6.3", {"lora": set(), "settings": {"moved", "new"}})
    assert [cause["words"] for cause in made["log"]] == [["moved"], ["new"]]


def test_what_the_installed_libraries_say_is_in_their_file() -> None:
    pytest.importorskip("vllm")
    shipped = json.loads(FILE.with_name("libraries.json").read_text(encoding="utf-8"))
    assert with_libraries(shipped) == shipped
    assert all(cause["words"] for cause in shipped["log"])


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("ValueError: nobody ever wrote this of max_num_batched_tokens", "scheduler"),
        ("  Value error, nobody ever wrote this of --data-parallel-size-local [type=value_error]", "parallel"),
        ("AssertionError: nobody ever wrote this of max_lora_rank", "lora"),
        ("NotImplementedError: nobody ever wrote this of kv_transfer_config", "settings"),
        ("KeyError: 'max_num_batched_tokens'", None),
        ("ValueError: No model weights found in: `/opt/ml/model`", "model-files"),
        ("ValueError: You cannot encode text when `skip_tokenizer_init=True`", "settings"),
        ("ValueError: FlashInfer is required for the flashinfer Mamba SSU backend", "settings"),
        ("ValueError: nobody ever wrote this of block_size", None),
    ],
)
def test_an_unknown_error_that_names_a_flag_is_about_that_flag(line: str, cause: str | None) -> None:
    assert toolkit.explain(line).cause == cause
