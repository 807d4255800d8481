"""Hidden states: those of the layers that vLLM hands to a head, each sample as if it were alone."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from toolkit.errors import PlatformError, UsageError
from toolkit.training.samples import Sample, Samples, SampleWriter, states_file
from toolkit.training.states import Extractor, extract_states, require_room

LAYERS = (3, 0, 1)


@pytest.fixture(scope="module")
def target() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, eos_token_id=2, name_or_path="org/target",
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()  # type: ignore[no-untyped-call]


@pytest.fixture
def extractor(target: Qwen3ForCausalLM) -> Extractor:
    return Extractor(target, LAYERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of two samples each, of different lengths."""
    with SampleWriter(tmp_path, "tokenizer's digest", shard_tokens=20) as writer:
        for length in (18, 3, 7, 30, 2, 25):
            tokens = torch.randint(50, (length,), generator=torch.Generator().manual_seed(length), dtype=torch.int32)
            writer.add(Sample(tokens, torch.ones(length, dtype=torch.uint8)))
    return tmp_path


def test_states_are_those_that_transformers_gives_for_each_sample_alone(
    target: Qwen3ForCausalLM, extractor: Extractor, folder: Path
) -> None:
    assert list(extract_states(folder, extractor)) == [0, 1, 2]
    samples = Samples(folder)
    last: list[torch.Tensor] = []
    target.model.norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0][0].detach()))
    for index, sample in enumerate(samples):
        found = samples.states(index)
        with torch.inference_mode():
            wanted = target(input_ids=sample.input_ids.long()[None], output_hidden_states=True).hidden_states
        side_by_side = torch.cat([wanted[layer][0] for layer in sorted(LAYERS)], dim=-1)
        torch.testing.assert_close(found.hidden_states, side_by_side, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.last_hidden_states, last[-1], atol=1e-5, rtol=1e-4)


def test_what_is_there_is_not_computed_again(extractor: Extractor, folder: Path) -> None:
    for shard in extract_states(folder, extractor):
        if shard == 1:
            break
    before = states_file(folder, 0).stat().st_ino
    states_file(folder, 1).write_bytes(b"damaged")
    assert list(extract_states(folder, extractor)) == [0, 1, 2]
    assert states_file(folder, 0).stat().st_ino == before
    assert Samples(folder).states(2).last_hidden_states.shape == (7, 16)


def test_other_layers_or_samples_are_computed_anew(
    target: Qwen3ForCausalLM, extractor: Extractor, folder: Path
) -> None:
    list(extract_states(folder, extractor))
    list(extract_states(folder, Extractor(target, (2,))))
    assert Samples(folder).states(0).hidden_states.shape == (18, 16)


def test_the_size_is_known_before(extractor: Extractor, folder: Path) -> None:
    assert extractor.bytes_per_token == 4 * 16 * 4
    assert require_room((folder,), extractor) == 85 * 256
    list(extract_states(folder, extractor))
    assert sum(path.stat().st_size for path in folder.glob("states-*")) == pytest.approx(85 * 256, rel=0.1)


def test_a_disk_without_room_is_refused_before_anything_is_computed(
    extractor: Extractor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 10**9, 10**9))
    with pytest.raises(PlatformError, match=r"states of 85 tokens take 0\.0 GB.* has 1\.0 GB\n.*training\.volume_gb"):
        require_room((folder,), extractor)
    assert not list(folder.glob("states-*"))


@pytest.mark.parametrize("layers", [(), (5,), (-1, 2)])
def test_layers_that_the_target_does_not_have(target: Qwen3ForCausalLM, layers: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"no hidden states .*\n.*from 0 \(the embedding\) to 4"):
        Extractor(target, layers)


def test_states_that_are_not_numbers_are_refused(target: Qwen3ForCausalLM, folder: Path) -> None:
    broken = Qwen3ForCausalLM(target.config).eval()  # type: ignore[no-untyped-call]
    broken.model.layers[0].mlp.down_proj.weight.data.fill_(torch.inf)
    with pytest.raises(UsageError, match=r"not finite numbers\n.*training\.dtype"):
        list(extract_states(folder, Extractor(broken, LAYERS)))
