"""What vLLM is asked about a recipe, and how its words become findings. The answers are scripted here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pairs import RECIPE, write_pair, write_recipe

from toolkit.engines.vllm.asking import ask
from toolkit.engines.vllm.installed import installed
from toolkit.engines.vllm.process import NoAnswer
from toolkit.home import home
from toolkit.loading import load
from toolkit.recipe.facts import Lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import EngineAnswer

FIELD = """1 validation error for ModelConfig
max_logprobs
  Input should be greater than or equal to -1 [type=greater_than_equal, input_value=-2, input_type=int]
    For further information visit https://errors.pydantic.dev/2.14/v/greater_than_equal"""
WHOLE = """1 validation error for ParallelConfig
  Value error, enable_expert_parallel must be True to use EPLB. [type=value_error, input_value=ArgsKwargs((), {'p...
    For further information visit https://errors.pydantic.dev/2.14/v/value_error"""
NESTED = """argument --structured-outputs-config: 1 validation error for StructuredOutputsConfig
backend
  Input should be 'auto' or 'xgrammar' [type=literal_error, input_value='x', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/literal_error"""


@dataclass
class Scripted:
    """Refuses a flag with these words, the first of them first; `asked` are the questions."""

    refuses: Mapping[str, str]
    fails: Mapping[str, str] = field(default_factory=dict)
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def ask(self, question: Mapping[str, Any]) -> dict[str, str]:
        self.asked.append(question)
        for kind, words in (("refused", self.refuses), ("failed", self.fails)):
            for flag, said in words.items():
                if f"SM_VLLM_{flag.upper().replace('-', '_')}" in question["flags"]:
                    return {kind: said}
        return {}


def recipe(root: Path, args: Mapping[str, Any], text: str = RECIPE, **env: str) -> Recipe:
    write_pair(root)
    written = text.replace("0.32.0", installed()).replace('{HF_HUB_OFFLINE: "1"}', json.dumps(env))
    written = written.replace("  args:\n    dtype: float32\n    enforce-eager: true\n", f"  args: {json.dumps(args)}\n")
    return load(write_recipe(root, written))


def models(root: Path, **target: Any) -> Lock:
    return Lock(replace(read_folder(root / "target"), **target), read_folder(root / "drafter"))


def asked(root: Path, made: Recipe, vllm: Scripted, **target: Any) -> EngineAnswer:
    return ask(made, models(root, **target), True, lambda *_: vllm)


def found(answer: EngineAnswer) -> list[tuple[str, str]]:
    return [(finding.path, finding.message) for finding in answer.findings]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (FIELD, "max_logprobs: Input should be greater than or equal to -1"),
        (WHOLE, "enable_expert_parallel must be True to use EPLB."),
        (NESTED, "argument --structured-outputs-config: backend: Input should be 'auto' or 'xgrammar'"),
        (
            "Value 1k cannot be converted to <function human at 0x7f5e42e82b60>.",
            "Value 1k cannot be converted to human.",
        ),
        (f"Unknown. Valid are: {'ONE, ' * 200}", f"Unknown. Valid are: {('ONE, ' * 76).strip()} …"),
    ],
)
def test_the_words_are_the_engine_s_without_the_wrapping(tmp_path: Path, words: str, says: str) -> None:
    made = recipe(tmp_path, {"enable-eplb": True})
    (said,) = found(asked(tmp_path, made, Scripted({"enable-eplb": words})))
    assert said == ("engine.args.enable-eplb", f"vLLM {installed()} refuses this: {says}")


def test_every_flag_that_is_refused_is_found_one_after_the_other(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"dtype": "float32", "max-logprobs": -2, "seed": 1, "enable-eplb": True})
    vllm = Scripted({"enable-eplb": "no EPLB", "max-logprobs": FIELD})
    answer = asked(tmp_path, made, vllm)
    assert [path for path, _ in found(answer)] == ["engine.args.enable-eplb", "engine.args.max-logprobs"]
    assert {finding.code for finding in answer.findings} == {"engine.refused"}
    assert len(vllm.asked) == 6  # of the first words nothing names the flag, so dtype, max-logprobs and seed were tried


def test_a_flag_that_is_off_is_found_at_its_key(tmp_path: Path) -> None:
    """vLLM is asked with its negative, as the image is given it."""
    made = recipe(tmp_path, {"enable-chunked-prefill": False})
    vllm = Scripted({"no-enable-chunked-prefill": "prompts do not fit"})
    assert [path for path, _ in found(asked(tmp_path, made, vllm))] == ["engine.args.enable-chunked-prefill"]


def test_the_flag_that_the_words_name_is_tried_first(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"dtype": "float32", "seed": 1, "max-logprobs": -2})
    vllm = Scripted({"max-logprobs": FIELD})
    asked(tmp_path, made, vllm)
    assert len(vllm.asked) == 2


def test_words_about_a_setting_of_the_toolkit_are_found_at_its_key(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"seed": 1})
    words = "User-specified max_model_len (1024) is greater than the derived max_model_len"
    assert found(asked(tmp_path, made, Scripted({"model": words})))[0][0] == "engine.max_model_len"
    words = "num_speculative_tokens:7 must be divisible by n_predict=2"
    assert found(asked(tmp_path, replace(made, name="b"), Scripted({"model": words})))[0][0] == (
        "speculation.num_speculative_tokens"
    )


@pytest.mark.parametrize("config", [3, '{"method": "ngram"}'])
def test_a_speculation_that_is_written_as_a_flag_is_not_asked_about(tmp_path: Path, config: Any) -> None:
    speculation = RECIPE[RECIPE.index("speculation:") : RECIPE.index("engine:")]
    made = recipe(
        tmp_path, {"speculative-config": config}, RECIPE.replace(speculation, "speculation: {method: none}\n")
    )
    vllm = Scripted({"speculative-config": "unreadable"})
    assert asked(tmp_path, made, vllm).findings == ()
    assert vllm.asked


def test_what_vllm_cannot_say_is_no_error(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"chat-template": "/x.jinja", "seed": 1})
    answer = asked(tmp_path, made, Scripted({"seed": "no seed"}, {"chat-template": "OSError: /x.jinja is missing"}))
    assert [(finding.path, finding.code, finding.severity) for finding in answer.findings] == [
        ("engine.args.seed", "engine.refused", "error"),
        ("engine.args.chat-template", "engine.not-asked", "info"),
    ]


def test_a_model_of_which_a_part_is_known_is_not_refused(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"seed": 1})
    (finding,) = asked(tmp_path, made, Scripted({"model": "no such model"}), partial=True).findings
    assert (finding.code, finding.severity) == ("engine.not-asked", "info")


class WithoutAPackage(Scripted):
    """Needs one for speculation; without that it follows its script."""

    def ask(self, question: Mapping[str, Any]) -> dict[str, str]:
        if "SM_VLLM_SPECULATIVE_CONFIG" in question["flags"]:
            return {"failed": "ImportError: a package is required"}
        return super().ask(question)


def test_what_cannot_be_said_of_a_drafter_does_not_hide_the_rest(tmp_path: Path) -> None:
    answer = asked(tmp_path, recipe(tmp_path, {"seed": 1}), WithoutAPackage({"seed": "no seed"}))
    assert [(finding.path, finding.code) for finding in answer.findings] == [
        ("speculation", "engine.not-asked"),
        ("engine.args.seed", "engine.refused"),
    ]


def test_a_question_has_no_path_no_secret_and_nothing_that_runs_code(tmp_path: Path) -> None:
    args = {"trust-remote-code": True, "middleware": "a.b", "api-key": "k", "middl": "a.b", "seed": 1, "revision": "r"}
    made = recipe(tmp_path, args, VLLM_USE_V2_MODEL_RUNNER="0", VLLM_PLUGINS="x", AWS_PROFILE="p", VLLM_CACHE_ROOT="/c")
    vllm = Scripted({})
    asked(tmp_path, made, vllm)
    (question,) = vllm.asked
    assert set(question["flags"]) == {
        f"SM_VLLM_{name}"
        for name in ("MODEL", "MAX_MODEL_LEN", "MAX_NUM_SEQS", "MAX_NUM_BATCHED_TOKENS", "SERVED_MODEL_NAME")
    } | {
        "SM_VLLM_ENABLE_PROMPT_TOKENS_DETAILS",
        "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS",
        "SM_VLLM_SEED",
        "SM_VLLM_SPECULATIVE_CONFIG",
    }
    assert question["variables"] == {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert question["device"] is None
    assert str(tmp_path) not in json.dumps({**question, "entrypoint": ""})
    assert question["models"]["target"]["config.json"]["architectures"] == ["LlamaForCausalLM"]


GPUS = "{name: sagemaker, instance_types: [ml.g4dn.xlarge, {type: ml.g6e.12xlarge, args: {seed: 2}}]}"


def test_each_instance_type_is_pretended_with_its_own_flags(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"dtype": "auto"}, RECIPE.replace("{name: local}", GPUS))
    vllm = Scripted({"seed": "no seed"})
    pretended: list[bool] = []
    answer = ask(made, models(tmp_path), True, lambda on, _: pretended.append(on) or vllm)  # type: ignore[func-returns-value]
    assert pretended == [True, True]
    devices = [question["device"] for question in vllm.asked]
    assert devices[0] == {"name": "NVIDIA T4", "capability": [7, 5], "bytes": 15633219584, "count": 1}
    assert (devices[1]["name"], devices[1]["capability"], devices[1]["count"]) == ("NVIDIA L40S", [8, 9], 4)
    assert found(answer) == [
        ("platform.instance_types.1.args.seed", f"vLLM {installed()} refuses this on ml.g6e.12xlarge: no seed")
    ]


def test_an_answer_is_kept_until_something_changes(tmp_path: Path) -> None:
    made, vllm = recipe(tmp_path, {"seed": 1}), Scripted({"seed": "no seed"})
    first = asked(tmp_path, made, vllm)
    before = len(vllm.asked)
    assert ask(made, models(tmp_path), False).findings == asked(tmp_path, made, vllm).findings == first.findings
    assert len(vllm.asked) == before
    assert len(list((home() / "asked").iterdir())) == 1
    other = recipe(tmp_path, {"seed": 2})
    assert ask(other, models(tmp_path), False) == EngineAnswer(
        f"vLLM {installed()}", why_not="its answer is not kept", can_be_asked=True
    )


def test_a_kept_answer_that_is_damaged_is_asked_for_again(tmp_path: Path) -> None:
    made, vllm = recipe(tmp_path, {"seed": 1}), Scripted({"seed": "no seed"})
    asked(tmp_path, made, vllm)
    (file,) = (home() / "asked").iterdir()
    file.write_text('[{"words": 1}]')
    before = len(vllm.asked)
    assert asked(tmp_path, made, vllm).findings
    assert len(vllm.asked) > before


def test_why_it_is_not_asked(tmp_path: Path) -> None:
    made = recipe(tmp_path, {})
    older = replace(made, engine=made.engine.edit(version="0.19.0"))
    trainium = recipe(
        tmp_path, {}, RECIPE.replace("{name: local}", "{name: sagemaker, instance_types: [ml.trn2.3xlarge]}")
    )
    assert ask(older, models(tmp_path), True).why_not == f"{installed()} is installed here"
    assert ask(made, None, True).why_not == "the models are not known"
    assert ask(trainium, models(tmp_path), True).why_not == "nothing is known of a GPU of ml.trn2.3xlarge"


def test_an_engine_that_does_not_come_up_gives_no_verdict(tmp_path: Path) -> None:
    class Broken:
        def ask(self, question: Mapping[str, Any]) -> dict[str, str]:
            raise NoAnswer("its process ended with exit code 1")

    answer = ask(recipe(tmp_path, {}), models(tmp_path), True, lambda *_: Broken())
    assert answer == EngineAnswer(f"vLLM {installed()}", why_not="its process ended with exit code 1")
    assert not (home() / "asked").exists() or not list((home() / "asked").iterdir())


def test_of_another_version_only_what_gpus_run_can_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU vLLM asks what is compiled, and of a version that is not installed its Python alone is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where this user may have fetched that version
    here = recipe(tmp_path, {})
    other = replace(here, engine=here.engine.edit(version="0.31.0"))
    on_gpu = load(write_recipe(tmp_path, RECIPE.replace("0.32.0", "0.31.0").replace("{name: local}", GPUS)))
    answers = [ask(one, models(tmp_path), False, lambda *_: Scripted({})) for one in (other, on_gpu)]
    assert [one.can_be_fetched for one in answers] == [False, True]
    assert {one.why_not for one in answers} == {f"{installed()} is installed here"}


def test_a_cache_that_cannot_be_written_to_is_told_and_all_else_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "toolkit").write_text("a file")
    made = load(write_recipe(tmp_path, RECIPE.replace("0.32.0", "0.31.0").replace("{name: local}", GPUS)))
    write_pair(tmp_path)
    answer = ask(made, models(tmp_path), "deep", lambda *_: Scripted({}))
    assert answer.why_not.startswith("cannot keep the code of vLLM 0.31.0: ")
