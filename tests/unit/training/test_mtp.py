"""A target's own block for drafting: read of its checkpoint, computed as an engine goes on, and written as it was."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from speculators.models.mtp import MTPDraftModel
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextExperts

from tests.unit.training.heads import (
    HIDDEN,
    SHIPPED,
    VOCAB,
    assert_same,
    gradients,
    job_for,
    random_lesson,
    save_own_block_target,
    save_target,
)
from toolkit.api.checking import check
from toolkit.checks.training import head_parameters
from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.trained import with_method
from toolkit.sizing.shape import shape_of
from toolkit.training.__main__ import main
from toolkit.training.head import build_head, layers_read
from toolkit.training.job import TrainingJob
from toolkit.training.learn import Lesson, loss_function
from toolkit.training.mtp import BY_EXPERT, MtpLearner, write_block

DEPTHS, TOKENS = 3, 20
HYBRID = ("linear_attention", "full_attention")
CPU = torch.device("cpu")
RECIPE = """\
name: my-block
target: {model: ./target}
training: {data: [./chats.jsonl]}
speculation: {method: mtp, model: ./block, num_speculative_tokens: 2}
engine: {version: 0.32.0, max_model_len: 256, max_num_seqs: 4, max_num_batched_tokens: 2048}
platform: {name: local}
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """Of a target that has layers without attention, too, as Qwen3-Next's have."""
    target = save_own_block_target(tmp_path_factory.mktemp("target"), HYBRID)
    return job_for(target, method="mtp", layers=1, depth=DEPTHS)


@pytest.fixture
def head(job: TrainingJob) -> MTPDraftModel:
    found = build_head(job)
    assert isinstance(found, MTPDraftModel)
    return found


@pytest.fixture
def sequence() -> Lesson:
    generator = torch.Generator().manual_seed(3)
    states, last = (torch.randn(TOKENS, HIDDEN, generator=generator) for _ in range(2))
    return replace(random_lesson(TOKENS), hidden_states=states, last_hidden_states=last)


def scored(learner: MtpLearner, sequence: Lesson) -> list[Tensor]:
    """The logits of each depth [tokens, V], as the loss gets them."""
    found: list[Tensor] = []

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        found.append(logits[0])
        return learner.loss(logits, targets)

    replace(learner, loss=loss).evaluate(sequence)
    return found


def test_the_first_draft_is_the_one_that_speculators_computes(head: MTPDraftModel, sequence: Lesson) -> None:
    """There a sequence begins with the state's own token, before the one that is read beside it."""
    found = scored(MtpLearner(head, loss_function(CPU), 1), sequence)[0]
    states = head.verifier_norm(sequence.hidden_states)
    tokens = torch.cat([torch.zeros(1, dtype=torch.long), sequence.input_ids, torch.zeros(2, dtype=torch.long)])
    head.config.speculators_config.proposal_methods[0].speculative_tokens = 1
    theirs, _, _ = head(input_ids=tokens[None], hidden_states=torch.cat([states, torch.zeros(3, HIDDEN)])[None])
    torch.testing.assert_close(found, theirs[0][0, :TOKENS])


def test_every_draft_is_the_one_of_an_engine_that_drafts_token_by_token(head: MTPDraftModel, sequence: Lesson) -> None:
    """Of each anchor anew: all text before it from the target's states, then one draft behind the other."""
    found = scored(MtpLearner(head, loss_function(CPU), DEPTHS), sequence)
    for anchor in (0, 7, TOKENS - DEPTHS):
        tokens, states = sequence.input_ids[: anchor + 1], head.verifier_norm(sequence.hidden_states[: anchor + 1])
        for depth in range(DEPTHS):
            mask = torch.full((len(tokens), len(tokens)), float("-inf")).triu(1)[None, None]
            made = head.mtp_layers[0](
                hidden_states=states[None],
                token_embeddings=head.embed_tokens(tokens)[None],
                attention_mask=mask,
                position_embeddings=head.rotary_emb(states, torch.arange(len(tokens))[None]),
            )[0]
            torch.testing.assert_close(head.lm_head(made[-1]), found[depth][anchor], msg=f"{anchor}, {depth}")
            states = torch.cat([states, made[-1:]])
            tokens = sequence.input_ids[: len(tokens) + 1]


def test_the_whole_block_learns_and_nothing_that_is_the_targets(head: MTPDraftModel, sequence: Lesson) -> None:
    found = gradients(head, lambda: MtpLearner(head, loss_function(CPU), DEPTHS).learn(sequence))
    assert set(found) == {name for name, _ in head.named_parameters() if name.startswith("mtp_layers.")}
    assert all(bool(gradient.abs().max() > 0) for gradient in found.values())


def test_experts_compute_what_transformers_own_do_and_make_no_gradient_of_all_for_each() -> None:
    """Of each of `eager`'s experts the backward pass makes a gradient as large as those of all."""
    experts = 16
    config = Qwen3NextConfig(hidden_size=8, moe_intermediate_size=4, num_experts=experts, num_experts_per_tok=2)
    torch.manual_seed(0)
    module = Qwen3NextExperts(config)  # type: ignore[no-untyped-call]
    for weight in module.parameters():
        nn.init.normal_(weight)
    states, chosen = torch.randn(40, 8), torch.rand(40, experts - 1).topk(2).indices  # the last one has no token
    shares = torch.rand(40, 2, requires_grad=True)
    found, made = {}, {}
    for way in ("eager", BY_EXPERT):
        config._experts_implementation = way
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
            said = module(states, chosen, shares)
            made[way] = gradients(module, said.square().sum().backward) | {"said": said.detach(), "shares": shares.grad}
        shares.grad = None
        found[way] = sum(one.count for one in told.key_averages() if one.key == "aten::select_backward")
    assert_same(made[BY_EXPERT], made["eager"])
    assert found["eager"] >= experts
    assert found[BY_EXPERT] == 0


def test_what_is_said_right_is_the_texts_own_token_at_that_depth(head: MTPDraftModel, sequence: Lesson) -> None:
    said = sequence.input_ids[9]
    head.lm_head = nn.Linear(HIDDEN, VOCAB)
    nn.init.zeros_(head.lm_head.weight)
    head.lm_head.bias.data[said] = 1e3
    right = MtpLearner(head, loss_function(CPU), DEPTHS).evaluate(sequence).right
    assert right.nonzero().tolist() == [[6, 2], [7, 1], [8, 0]]


def test_written_it_has_the_tensors_of_the_checkpoint_and_is_read_again(
    job: TrainingJob, head: MTPDraftModel, tmp_path: Path
) -> None:
    write_block(head, tmp_path / "block")
    found, stored = (
        load_file(tmp_path / "block" / "model.safetensors"),
        load_file(Path(job.target) / "model.safetensors"),
    )
    own = {name: tensor.bfloat16() for name, tensor in stored.items() if name.startswith("mtp.")}
    assert found.keys() == own.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in own.items())
    again = build_head(job.model_copy(update={"start_from": str(tmp_path / "block")}))
    assert all(
        torch.equal(again.state_dict()[name].bfloat16(), value.bfloat16()) for name, value in head.state_dict().items()
    )


def test_a_block_of_a_quantized_target_can_be_continued_and_says_not_where_the_target_lay(
    job: TrainingJob, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(job.target, target)
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "modules_to_not_convert": ["mtp"]}
    (target / "config.json").write_text(json.dumps(config))
    head = build_head(job.model_copy(update={"target": str(target)}))
    assert isinstance(head, MTPDraftModel)
    write_block(head, tmp_path / "block")
    assert str(tmp_path) not in (tmp_path / "block" / "config.json").read_text()
    again = job.model_copy(update={"target": str(target), "start_from": str(tmp_path / "block")})
    assert isinstance(build_head(again), MTPDraftModel)


def test_it_reads_the_state_before_the_final_norm(job: TrainingJob) -> None:
    assert layers_read(job) == (len(HYBRID),)


def test_a_target_without_a_block_or_of_another_kind_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    job = job_for(save_target(tmp_path / "none"), method="mtp", layers=1)
    with pytest.raises(UsageError, match=r"no tensor begins with `mtp\.`"):
        layers_read(job)
    weights = Path(job.target) / "model.safetensors"
    save_file(load_file(weights) | {"mtp.fc.weight": torch.zeros(2, 2)}, weights, {"format": "pt"})
    with pytest.raises(UsageError, match="the block of a `qwen3` target is not trained"):
        layers_read(job)


def test_a_block_that_is_stored_quantized_is_refused(tmp_path: Path) -> None:
    weights = save_own_block_target(tmp_path) / "model.safetensors"
    stored = load_file(weights)
    stored["mtp.fc.weight"] = stored["mtp.fc.weight"].to(torch.float8_e4m3fn)
    save_file(stored, weights, {"format": "pt"})
    with pytest.raises(UsageError, match=r"stored quantized \(`mtp\.fc\.weight`\)"):
        layers_read(job_for(tmp_path, method="mtp", layers=1))


def test_a_block_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    weights = save_own_block_target(tmp_path) / "model.safetensors"
    stored = load_file(weights)
    del stored["mtp.norm.weight"]
    save_file(stored, weights, {"format": "pt"})
    with pytest.raises(UsageError, match=r"tensor `mtp_layers\.0\.final_layernorm\.weight` of it does not fit"):
        build_head(job_for(tmp_path, method="mtp", layers=1))


def test_a_job_trains_the_block_on_and_says_what_it_was_before(tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "1 2 3"}
    rows = [{"messages": [{"role": "user", "content": f"Count to {number}."}, answer]} for number in range(24)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = save_own_block_target(tmp_path / "target", HYBRID)
    job = job_for(
        target,
        method="mtp",
        layers=1,
        depth=DEPTHS,
        num_speculative_tokens=2,
        steps=4,
        batch_tokens=60,
        learning_rate=0.01,
        held_out=0.3,
        responses="keep",
        data=(str(tmp_path / "data.jsonl"),),
    )
    job.write(tmp_path)
    assert main(tmp_path) == 0

    made = tmp_path / "head"
    report = json.loads((made / "report.json").read_text())
    assert report["method"] == "mtp"
    assert report["evaluations"][0][0] == 0
    before, after = load_file(target / "model.safetensors"), load_file(made / "model.safetensors")
    assert {name for name, tensor in after.items() if not torch.equal(tensor, before[name].bfloat16())} == {
        name for name in before if name.startswith("mtp.")
    }
    config = json.loads((made / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["target_model"]) == (
        "qwen3_next",
        1,
        "org/target",
    )
    assert '"method": "mtp"' in (made / "README.md").read_text()


@pytest.mark.parametrize(
    ("written", "instead", "found"),
    [
        ("", "", []),
        (", model: ./block", "", [("training.destination", "speculation.model")]),
        ("chats.jsonl]", "chats.jsonl], layers: 2", [("training.own-block", "training.layers")]),
        ("chats.jsonl]", "chats.jsonl], preset: tiny", []),
        ("chats.jsonl]", "chats.jsonl], draft_vocab_size: 99", [("training.own-block", "training.draft_vocab_size")]),
        ("./target", f"{SHIPPED}", [("training.own-block", "speculation.method")]),
    ],
)
def test_check_finds_what_cannot_be_trained(
    tmp_path: Path, written: str, instead: str, found: list[tuple[str, str]]
) -> None:
    save_own_block_target(tmp_path / "target")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "a"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace(written, instead) if written else RECIPE)
    errors = [(one.code, one.path) for one in check(recipe).errors if one.code.startswith("training.")]
    assert errors == found


def test_of_a_folder_with_more_than_a_block_the_hint_can_be_followed(tmp_path: Path) -> None:
    save_own_block_target(tmp_path / "target")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "a"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("chats.jsonl]", "chats.jsonl], start_from: ./target"))
    (error,) = [one for one in check(recipe).errors if one.code.startswith("training.")]
    assert error.message == "the head in `start_from` has 2 layers, and `layers` is 1"
    assert error.hint == "Name the folder of a block that was trained alone, or remove `start_from`."


def test_the_engines_own_name_of_the_method_is_served_and_for_training_the_word_is_told(tmp_path: Path) -> None:
    save_own_block_target(tmp_path / "target")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "a"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("method: mtp", "method: qwen3_next_mtp"))
    (error,) = [one for one in check(recipe).errors if one.code == "training.method"]
    assert error.hint.startswith("Write `method: mtp`")


def test_a_block_of_the_recipes_size_is_what_the_estimate_counts(tmp_path: Path) -> None:
    facts = read_folder(save_own_block_target(tmp_path / "target"))
    recipe = with_method(load("tiny/train-p-eagle"), "mtp")
    head = build_head(job_for(tmp_path / "target", method="mtp", layers=1))
    parts = [value.numel() for name, value in head.named_parameters() if not name.startswith("verifier_")]
    assert head_parameters(recipe, shape_of(facts)) == pytest.approx(sum(parts), rel=0.01)
    idle = 2 * 3 * HIDDEN * 32  # two of the four experts
    active = head_parameters(recipe, shape_of(facts), active=True)
    assert head_parameters(recipe, shape_of(facts)) - active == idle
