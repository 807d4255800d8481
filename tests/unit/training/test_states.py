"""Hidden states: those of the layers that vLLM hands to a head, each sample as if it were alone."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from toolkit.errors import UsageError
from toolkit.training.states import Extractor

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


def test_states_are_those_that_transformers_gives_for_each_sample_alone(
    target: Qwen3ForCausalLM, extractor: Extractor
) -> None:
    lengths = (18, 3, 7, 30, 2, 25)
    sequences = [torch.randint(50, (length,), generator=torch.Generator().manual_seed(length)) for length in lengths]
    found = extractor.states(sequences)
    last: list[torch.Tensor] = []
    target.model.norm.register_forward_pre_hook(lambda _, inputs: last.append(inputs[0][0].detach()))
    for sequence, states, before in zip(
        sequences,
        found.hidden_states.split(lengths),  # type: ignore[no-untyped-call]
        found.last_hidden_states.split(lengths),  # type: ignore[no-untyped-call]
        strict=True,
    ):
        with torch.inference_mode():
            wanted = target(input_ids=sequence[None], output_hidden_states=True).hidden_states
        side_by_side = torch.cat([wanted[layer][0] for layer in sorted(LAYERS)], dim=-1)
        torch.testing.assert_close(states, side_by_side, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(before, last[-1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", [(), (5,), (-1, 2)])
def test_layers_that_the_target_does_not_have(target: Qwen3ForCausalLM, layers: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"no hidden states .*\n.*from 0 \(the embedding\) to 4"):
        Extractor(target, layers)
