"""A recipe from a model's name: for every public model that the toolkit knows it passes the checks, or says why not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.api.deployment import plan
from toolkit.catalog import lookup
from toolkit.checks.run import findings_on
from toolkit.errors import ToolkitError, UsageError
from toolkit.loading import load
from toolkit.proposal.choose import propose
from toolkit.proposal.drafters import drafters
from toolkit.proposal.hardware import engine_for
from toolkit.proposal.model import Drafter, Proposal, Wishes
from toolkit.proposal.text import recipe_text
from toolkit.recipe.facts import ModelFacts, Tensor
from toolkit.recipe.known import known_model, known_models
from toolkit.recipe.lock import write_lock

HEADS = {head.repo.lower() for head in lookup.heads()}
TARGETS = [
    facts.model
    for facts in known_models().values()
    if facts.model.lower() not in HEADS and facts.text_config.get("num_hidden_layers")
]
P_EAGLE = {
    "openai/gpt-oss-20b": ("amazon/GPT-OSS-20B-P-EAGLE", 7, "0.29.0"),
    "openai/gpt-oss-120b": ("amazon/gpt-oss-120b-p-eagle", 5, "0.29.0"),
    "Qwen/Qwen3-8B": ("RedHatAI/Qwen3-8B-speculator.peagle", 7, "0.30.0"),
}


def facts_of(model: str) -> ModelFacts:
    found = known_model(model)
    assert found
    return found


def proposal(model: str, folder: Path, **wishes: object) -> Proposal:
    target = facts_of(model)
    wanted = Wishes(model, **wishes)  # type: ignore[arg-type]
    able = drafters(target, context=wanted.context, engine=engine_for(wanted))
    return propose(wanted, target, able, folder)


def checked(found: Proposal, folder: Path) -> Path:
    """The recipe's file, in which no check finds an error."""
    path = folder / "recipe.yaml"
    path.write_text(recipe_text(found, "Made by a test."))
    assert [item for item in findings_on(load(path), found.lock) if item.severity == "error"] == []
    return path


def choices(found: Proposal) -> dict[str, object]:
    return {choice.key: choice.value for choice in found.choices}


def test_there_are_at_least_thirty_models() -> None:
    assert len(TARGETS) >= 30


@pytest.mark.parametrize("model", TARGETS)
def test_a_known_model_gets_a_recipe_that_passes_the_checks(model: str, tmp_path: Path) -> None:
    found = proposal(model, tmp_path)
    path = checked(found, tmp_path)
    assert path.read_text().count("\n") <= 35
    chosen = choices(found)
    assert {"speculation.method", "engine.version", "platform.instance_types"} <= set(chosen)


@pytest.mark.parametrize(("model", "expected"), P_EAGLE.items(), ids=P_EAGLE)
def test_a_parallel_head_of_the_model_comes_first(model: str, expected: tuple[str, int, str], tmp_path: Path) -> None:
    found = choices(proposal(model, tmp_path))
    keys = ("speculation.model", "speculation.num_speculative_tokens", "engine.version")
    assert tuple(found[key] for key in keys) == expected


def test_long_contexts_get_the_head_for_them(tmp_path: Path) -> None:
    found = choices(proposal("openai/gpt-oss-20b", tmp_path, context=100_000))
    assert found["speculation.model"] == "amazon/gpt-oss-20b-p-eagle-long-context"
    assert found["engine.max_model_len"] == 100_000


def test_the_best_published_acceptance_of_a_head_is_said() -> None:
    first = drafters(facts_of("Qwen/Qwen3-8B"))[0]
    assert "published: 3.82 tokens a step (math reasoning, K=7)" in first.why


def test_layers_of_the_model_itself_draft_where_it_has_them(tmp_path: Path) -> None:
    assert choices(proposal("deepseek-ai/DeepSeek-R1", tmp_path))["speculation.method"] == "mtp"


@pytest.mark.parametrize(("layers", "drafts"), [(1, True), (None, True), (0, False)])
def test_a_model_drafts_itself_unless_its_config_counts_no_layers_for_it(layers: int | None, drafts: bool) -> None:
    facts = facts_of("deepseek-ai/DeepSeek-R1")
    config = {key: value for key, value in facts.config.items() if key != "num_nextn_predict_layers"}
    counted = {} if layers is None else {"num_nextn_predict_layers": layers}
    found = drafters(replace(facts, config={**config, **counted}))
    assert ("mtp" in [drafter.method for drafter in found]) is drafts


def test_layers_that_the_checkpoint_left_out_do_not_draft() -> None:
    """As quantized copies do, whose config.json still counts them."""
    facts = facts_of("deepseek-ai/DeepSeek-R1")
    whole, copy = ({name: Tensor("BF16", (8, 8))} for name in ("model.layers.61.eh_proj.weight", "lm_head.weight"))
    for tensors, drafts in ((whole, True), (copy, False)):
        found = drafters(replace(facts, tensors=tensors))
        assert ("mtp" in [drafter.method for drafter in found]) is drafts


def test_a_dspark_block_is_read_in_the_config_of_the_checkpoint() -> None:
    """DeepSeek-V4-Flash has none in its first checkpoints, and one in those called DSpark."""
    sizes = facts_of("deepseek-ai/DeepSeek-V3").config
    config = {**sizes, "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}
    block = {"dspark_target_layer_ids": [1, 30, 58], "dspark_markov_rank": 256}
    for own, drafts in (({}, False), (block, True)):
        found = drafters(ModelFacts("org/v4", "", {**config, **own}, None, None))
        assert ("dspark" in [drafter.method for drafter in found]) is drafts
        assert "mtp" in [drafter.method for drafter in found]


def test_a_head_that_is_published_with_how_it_is_served_comes_first() -> None:
    found = [drafter.model for drafter in drafters(facts_of("google/gemma-4-31B-it")) if drafter.model]
    assert found[0] == "google/gemma-4-31B-it-assistant"
    assert "RedHatAI/gemma-4-31B-it-speculator.dspark" in found[1:]


def test_layers_of_the_target_come_before_a_head_of_which_nobody_tells_how_it_is_served() -> None:
    found = [drafter.model or drafter.method for drafter in drafters(facts_of("Qwen/Qwen3.5-35B-A3B"))]
    assert found.index("mtp") < found.index("z-lab/Qwen3.5-35B-A3B-DFlash")
    unread = [drafter.model or drafter.method for drafter in drafters(facts_of("Qwen/Qwen3.5-27B"))]
    assert unread.index("mtp") < unread.index("z-lab/Qwen3.5-27B-DFlash")


def test_of_a_head_that_nobody_read_it_says_so_and_where_its_k_is_from() -> None:
    by_model = {drafter.model: drafter for drafter in drafters(facts_of("Qwen/Qwen3.5-27B"))}
    unread = by_model["z-lab/Qwen3.5-27B-DFlash"]
    assert "unverified: its card and its files were not read" in unread.why
    assert unread.tokens_why == "as published: github z-lab/dflash@44947fb, README (supported models)"


def test_a_plan_tells_of_a_head_that_nobody_read(tmp_path: Path) -> None:
    found = proposal("meta-llama/Llama-3.3-70B-Instruct", tmp_path, method="eagle3")
    head = choices(found)["speculation.model"]
    said = f"Warning: speculation.model: {head}: unverified: its card and its files were not read. Read its card"
    path = checked(found, tmp_path)
    write_lock(load(path), found.lock)
    assert any(note.startswith(said) for note in plan(path).notes)


def test_a_licence_that_forbids_commercial_use_is_said() -> None:
    target = replace(facts_of("Qwen/Qwen3-8B"), model="zai-org/GLM-5.3")
    (why,) = [drafter.why for drafter in drafters(target) if drafter.model == "incoai/GLM-5.3-DFlash2"]
    assert why.endswith("its licence, cc-by-nc-nd-4.0, forbids commercial use")


def test_a_draft_model_for_a_mixture_of_experts_is_small_beside_what_a_token_passes_through(tmp_path: Path) -> None:
    methods = [drafter.method for drafter in drafters(facts_of("Qwen/Qwen3-30B-A3B"))]
    assert "draft-model" not in methods  # 0.6B parameters for 3B active ones of 30B
    assert "draft-model" in [drafter.method for drafter in drafters(facts_of("meta-llama/Llama-3.3-70B-Instruct"))]


def test_a_fine_tune_is_recognized_by_its_sizes(tmp_path: Path) -> None:
    base = facts_of("Qwen/Qwen3-8B")
    tuned = ModelFacts("./my-model", "folder my-model", base.config, None, None, base.weight_bytes)
    found = drafters(tuned)[0]
    assert (found.model, found.exact) == ("RedHatAI/Qwen3-8B-speculator.peagle", False)
    assert "which has the same sizes" in found.why


def test_a_budget_is_kept_or_the_cheapest_is_named(tmp_path: Path) -> None:
    cheap = proposal("Qwen/Qwen3-8B", tmp_path, max_price=2.7)
    assert choices(cheap)["platform.instance_types"] == ["ml.g6e.xlarge"]
    with pytest.raises(
        ToolkitError, match=r"costs 1 \$/h or less; the cheapest is ml\.g6e\.xlarge 2\.61 \$/h"
    ) as caught:
        proposal("Qwen/Qwen3-8B", tmp_path, max_price=1.0)
    assert "--max-price" in caught.value.hint


def test_a_method_that_is_not_known_for_the_model_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="no drafter of method `eagle3` is known for mistralai/") as caught:
        proposal("mistralai/Mixtral-8x7B-v0.1", tmp_path, method="eagle3")
    assert "Known for it: ngram" in caught.value.hint


def test_the_engine_version_is_one_that_the_head_works_with(tmp_path: Path) -> None:
    """The newest of which nothing bad is known; a drafter for newer engines than there are images is passed over."""
    target = facts_of("Qwen/Qwen3-8B")
    too_new = Drafter(
        "p-eagle", 7, "", "", "RedHatAI/Qwen3-8B-speculator.peagle", facts_of("RedHatAI/Qwen3-8B-speculator.peagle")
    )
    found = propose(Wishes(target.model), target, [too_new], tmp_path)
    assert choices(found)["engine.version"] == "0.31.0"


@pytest.mark.parametrize("platform", ["local", "kubernetes"])
def test_other_platforms(platform: str, tmp_path: Path) -> None:
    found = proposal("Qwen/Qwen3-0.6B", tmp_path, platform=platform)
    assert found.recipe["platform"]["name"] == platform


ON_TRAINIUM = {
    ("Qwen/Qwen3-32B", "trn2", "sagemaker"): ("draft-model", "Qwen/Qwen3-1.7B", 7, "0.9.1", 32, "ml.trn2.48xlarge"),
    ("Qwen/Qwen3-32B", "trn2", "kubernetes"): ("draft-model", "Qwen/Qwen3-1.7B", 7, "0.9.1", 32, "trn2.48xlarge"),
    ("meta-llama/Llama-3.1-8B-Instruct", "trn1", "sagemaker"): (
        "draft-model", "meta-llama/Llama-3.2-1B-Instruct", 7, "0.9.1", 32, "ml.trn1.32xlarge",
    ),
    ("openai/gpt-oss-120b", "trainium", "sagemaker"): (
        "eagle3", "RedHatAI/gpt-oss-120b-speculator.eagle3", 1, "0.29.0.1.2.0", 16, "ml.trn2.48xlarge",
    ),
    ("openai/gpt-oss-20b", "trn2", "sagemaker"): (
        "dflash", "z-lab/gpt-oss-20b-DFlash", 7, "0.29.0.1.2.0", 4, "ml.trn2.48xlarge",
    ),
    ("Qwen/Qwen3-8B", "trn2", "sagemaker"): (  # its DFlash2 head has a published K, too
        "dflash", "z-lab/Qwen3-8B-DFlash-b16", 15, "0.29.0.1.2.0", 4, "ml.trn2.48xlarge",
    ),
    ("meta-llama/Llama-3.3-70B-Instruct", "trn2", "sagemaker"): (  # of its EAGLE-3 head no file was read
        "draft-model", "meta-llama/Llama-3.2-1B-Instruct", 5, "0.9.1", 32, "ml.trn2.48xlarge",
    ),
    ("meta-llama/Llama-3.3-70B-Instruct", "trn1", "sagemaker"): (
        "draft-model", "meta-llama/Llama-3.2-1B-Instruct", 5, "0.9.1", 32, "ml.trn1.32xlarge",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wish", "expected"), ON_TRAINIUM.items(), ids=map(" ".join, ON_TRAINIUM))
def test_on_trainium(wish: tuple[str, str, str], expected: tuple[object, ...], tmp_path: Path) -> None:
    """As in the toolkit's own recipe if there is one, else with the settings that the method was published with."""
    model, hardware, platform = wish
    found = proposal(model, tmp_path, hardware=hardware, platform=platform)
    chosen, text = choices(found), checked(found, tmp_path).read_text()
    keys = ("speculation.method", "speculation.model", "speculation.num_speculative_tokens", "engine.version")
    tensor_parallel, (instance_type,) = chosen["engine.args.tensor-parallel-size"], chosen["platform.instance_types"]  # type: ignore[misc]
    assert (*(chosen[key] for key in keys), tensor_parallel, instance_type) == expected
    assert "# runs on Trainium" in text
    assert "  name: neuron" in text
    assert ("unproven, as nobody has published this pair" in text) == ("toolkit's own recipe" not in text)
    assert ("compile: at-start  # else compiled code must be" in text) == (platform == "kubernetes")


def test_a_split_of_another_chip_is_not_taken_over(tmp_path: Path) -> None:
    """The toolkit's own recipe for trn2 is split over 32 cores, of which no inf2 has as many."""
    chosen = choices(proposal("Qwen/Qwen3-32B", tmp_path, hardware="inf2", platform="kubernetes"))
    assert chosen["speculation.model"] == "Qwen/Qwen3-1.7B"
    assert chosen["engine.args.tensor-parallel-size"] == 8


def test_a_draft_model_is_small_with_all_of_its_experts(tmp_path: Path) -> None:
    """Qwen3-30B-A3B passes through 3B for a token, and keeps 30B in memory beside the target."""
    target = known_model("Qwen/Qwen3-32B")
    assert target
    listed = [drafter.model for drafter in drafters(target, engine="neuron") if drafter.method == "draft-model"]
    assert listed == ["Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B"]


def test_compiling_has_room_on_its_host(tmp_path: Path) -> None:
    chosen = choices(proposal("Qwen/Qwen3-8B", tmp_path, hardware="inf2", platform="kubernetes"))
    assert chosen["platform.instance_types"] == ["inf2.8xlarge"]  # of 128 GiB; the chips of an inf2.xlarge would do


def test_what_nobody_has_tried_is_not_proposed(tmp_path: Path) -> None:
    """EAGLE-3 on NxD Inference."""
    with pytest.raises(ToolkitError, match="does not run on inf2"):
        proposal("meta-llama/Llama-3.1-8B-Instruct", tmp_path, hardware="inf2", method="eagle3", platform="kubernetes")


def test_what_trainium_cannot_do_is_said_for_each_drafter(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match=r"0\.29\.0\.1\.2\.0 .* does not support method `p-eagle`") as caught:
        proposal("Qwen/Qwen3-8B", tmp_path, hardware="trn2", method="p-eagle")
    assert caught.value.hint.endswith(": toolkit new Qwen/Qwen3-8B")


@pytest.mark.parametrize(
    ("model", "method", "platform", "why"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", None, "kubernetes", "no drafter is known for mistralai/Mixtral-8x7B-v0.1 on"),
        ("Qwen/Qwen3.5-27B", None, "sagemaker", "this target is a `Qwen3_5ForConditionalGeneration`"),
        ("deepseek-ai/DeepSeek-R1", "mtp", "sagemaker", "no drafter of method `mtp` is known for deepseek-ai/DeepSeek"),
        ("google/gemma-4-31B-it", None, "sagemaker", "does not support method `gemma4_mtp`"),
    ],
)
def test_what_trainium_has_no_drafter_for_is_told_with_a_command_that_works(
    model: str, method: str | None, platform: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolkitError, match=re.escape(why)) as caught:
        proposal(model, tmp_path, hardware="trn2", method=method, platform=platform)
    said = re.fullmatch(r"Elsewhere than on trn2 it can draft with (.*): toolkit new (\S+)(.*)", caught.value.hint)
    assert said
    assert (said[2], said[3]) == (model, "" if platform == "sagemaker" else " --platform kubernetes")
    found = proposal(model, tmp_path, platform=platform)
    assert choices(found)["speculation.method"] in said[1].split(", ")
    checked(found, tmp_path)


def test_drafters_with_the_same_fault_stand_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError) as caught:
        proposal("openai/gpt-oss-20b", tmp_path, hardware="trn1")
    _, reason = caught.value.message.splitlines()
    assert reason.count("does not run on trn1") == 1
    assert "p-eagle (amazon/GPT-OSS-20B-P-EAGLE), dflash (" in reason


def test_a_method_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="no drafter of method `mtp` is known for Qwen/Qwen3-8B on trn2") as caught:
        proposal("Qwen/Qwen3-8B", tmp_path, hardware="trn2", method="mtp")
    assert caught.value.hint.startswith("Known for it on trn2: ")


def test_hardware_is_a_family_a_type_or_an_accelerator(tmp_path: Path) -> None:
    for hardware in ("g7e", "ml.g7e.2xlarge", "RTX PRO 6000"):
        (chosen,) = choices(proposal("Qwen/Qwen3-8B", tmp_path, hardware=hardware))["platform.instance_types"]  # type: ignore[misc]
        assert str(chosen).startswith("ml.g7e.")
    with pytest.raises(UsageError, match="no instance type called `g6f`") as caught:
        proposal("Qwen/Qwen3-8B", tmp_path, hardware="g6f")
    assert "--hardware g6" in caught.value.hint
    with pytest.raises(UsageError, match=r"nothing can be sized for trn3: .* no instance type's vCPUs") as caught:
        proposal("Qwen/Qwen3-8B", tmp_path, hardware="trn3")
    assert "--hardware trn2" in caught.value.hint
    with pytest.raises(UsageError, match="is this machine"):
        proposal("Qwen/Qwen3-0.6B", tmp_path, hardware="g6e", platform="local")


def test_every_choice_is_a_comment_with_its_reason_and_what_else_was_possible(tmp_path: Path) -> None:
    text = recipe_text(proposal("Qwen/Qwen3-8B", tmp_path), "Made by a test.")
    assert text.startswith("# Made by a test.\nname: qwen3-8b-p-eagle\ntarget: {model: Qwen/Qwen3-8B}\n")
    assert "also: dflash, eagle3, pard, draft-model, ngram" in text
    assert "version: 0.30.0  # as in the toolkit's own recipe qwen3-8b/p-eagle; also: 0.31.0, 0.29.0\n" in text
    assert "ml.g6e.2xlarge 2.80 $/h" in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.endswith("\n")


def test_a_comment_cannot_end_its_line(tmp_path: Path) -> None:
    found = proposal("Qwen/Qwen3-0.6B", tmp_path, platform="local")
    text = recipe_text(found, "Made by\nengine: {args: {x: 1}} \x1b[2J")
    assert text.startswith("# Made by engine: {args: {x: 1}} \\x1b[2J\nname:")
