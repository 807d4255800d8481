"""Loss masks by chat template: the target's own tokens, in the sequences that it sees when it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from toolkit.errors import UsageError
from toolkit.recipe.model_files import read_folder
from toolkit.training.chat import Chat, Turn, Unmaskable, load_chat, samples_of

TARGET = Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "target"

LLAMA_3 = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# Shows reasoning only of answers to the last question.
QWEN_3 = (
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    "{{- m.content + '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"
)
# Ends the last answer in another way than earlier ones, whose analysis it drops.
HARMONY = (
    "{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{%- if loop.last and m.reasoning_content %}"
    "{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + '<|end|>' }}{% endif %}"
    "{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last else '<|end|>') }}"
    "{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ '<' + m.role + '>' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}"
    "{{ '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>!' }}{% endif %}"
)
SPECIAL = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>",
    "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|end_of_text|>",
)  # fmt: skip

TWO_TURNS = [
    {"role": "user", "content": "Name a river."},
    {"role": "assistant", "content": "The Rhine.", "reasoning_content": "Near me."},
    {"role": "user", "content": "And a café?"},
    {"role": "assistant", "content": "Löwen & Söhne.", "reasoning_content": "In town."},
]


def chat(template: str | dict[str, str] | None, *ends: str) -> Chat:
    """A tokenizer of single bytes with that template."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=ends[0] if ends else "<|eot_id|>")
    fast.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    fast.chat_template = template
    return Chat(fast, [int(fast.convert_tokens_to_ids(end)) for end in ends])


def texts(of: Chat, turn: Turn) -> tuple[str, str]:
    prompt, answer = (str(of._tokenizer.decode(tokens)) for tokens in (turn.prompt, turn.answer))
    return prompt, answer


def test_llama_3_makes_one_sample_of_a_conversation() -> None:
    llama = chat(LLAMA_3, "<|eot_id|>", "<|end_of_text|>")
    turns = list(llama.turns(TWO_TURNS))
    assert [texts(llama, turn)[1] for turn in turns] == ["The Rhine.<|eot_id|>", "Löwen & Söhne.<|eot_id|>"]
    assert texts(llama, turns[0])[0].endswith(
        "Name a river.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    (sample,) = samples_of(turns, 1000).samples
    generated = [int(token) for token, mask in zip(sample.input_ids, sample.loss_mask, strict=True) if mask]
    assert generated == [*turns[0].answer, *turns[1].answer]
    assert sample.input_ids.tolist() == [*turns[1].prompt, *turns[1].answer]


def test_qwen_3_shows_earlier_answers_without_their_reasoning_so_each_answer_is_a_sample() -> None:
    qwen = chat(QWEN_3, "<|im_end|>")
    turns = list(qwen.turns(TWO_TURNS))
    assert [texts(qwen, turn)[1] for turn in turns] == [
        "<think>\nNear me.\n</think>\n\nThe Rhine.<|im_end|>",
        "<think>\nIn town.\n</think>\n\nLöwen & Söhne.<|im_end|>",
    ]
    assert "Near me." not in texts(qwen, turns[1])[0]
    assert [sample.input_ids.tolist() for sample in samples_of(turns, 1000).samples] == [
        turn.prompt + turn.answer for turn in turns
    ]


def test_harmony_ends_its_last_answer_with_return() -> None:
    harmony = chat(HARMONY, "<|return|>", "<|end_of_text|>")
    turns = list(harmony.turns(TWO_TURNS))
    assert texts(harmony, turns[0]) == (
        "<|start|>user<|message|>Name a river.<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>Near me.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>The Rhine.<|return|>",
    )
    assert "The Rhine.<|end|>" in texts(harmony, turns[1])[0]
    assert len(samples_of(turns, 1000).samples) == 2


@pytest.mark.parametrize(
    ("of", "answer", "text"),
    [
        (chat(QWEN_3, "<|im_end|>"), "<think>\nNear me.\n</think>\n\nThe Rhine.<|im_end|>", "The Rhine."),
        (
            chat(HARMONY, "<|return|>"),
            "<|channel|>analysis<|message|>Near me.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>The Rhine.<|return|>",
            "The Rhine.",
        ),
        (chat(LLAMA_3, "<|eot_id|>"), "The Rhine.<|eot_id|>", "The Rhine."),
    ],
)
def test_a_client_shows_the_answer_again_without_its_reasoning(of: Chat, answer: str, text: str) -> None:
    assert of.text(of.encode(answer)) == text


def test_marks_of_the_template_are_used_where_it_has_them() -> None:
    marked = chat(MARKED, "<|eot_id|>")
    (_, turn) = marked.turns(TWO_TURNS)
    prompt, answer = texts(marked, turn)
    assert prompt.endswith("And a café?<|eot_id|><assistant>")
    assert answer == "Löwen & Söhne.<|eot_id|>", "with the token that ends it"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}", "differently"),
        ("{{ raise_exception('roles must alternate') }}", "refuses"),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "changes the text"),
        ("{% for m in messages %}{% generation %}{% endgeneration %}{% endfor %}", "marks no token"),
    ],
)
def test_a_template_that_does_not_tell_the_answer(template: str, why: str) -> None:
    with pytest.raises(Unmaskable, match=why) as refusal:
        list(chat(template, "<|eot_id|>").turns(TWO_TURNS))
    assert "Rhine" not in str(refusal.value)


def test_with_tools_a_template_of_that_name_is_taken_as_engines_take_it() -> None:
    """Hermes' and Command R's tokenizers have two."""
    with_tools = "{{ tools[0].name }}|" + LLAMA_3
    several = chat({"default": LLAMA_3, "tool_use": with_tools}, "<|eot_id|>")
    plain, (turn,) = chat(LLAMA_3, "<|eot_id|>"), several.turns(TWO_TURNS[:2], tools=({"name": "look_up"},))
    assert texts(several, turn)[0].startswith("look_up|<|begin_of_text|>")
    assert several.prompt(TWO_TURNS[:1], ({"name": "look_up"},)) == turn.prompt
    assert several.prompt(TWO_TURNS[:1]) == plain.prompt(TWO_TURNS[:1])


def test_a_tokenizer_without_a_template() -> None:
    with pytest.raises(UsageError, match="has no chat template\n"):
        chat(None, "<|eot_id|>")


def test_answers_end_at_the_limit_and_prompts_beyond_it_are_counted() -> None:
    short, long = Turn([1, 2, 3], [4, 5, 6, 7]), Turn([9] * 8, [1])
    found = samples_of([short, long], max_length=5)
    assert [sample.input_ids.tolist() for sample in found.samples] == [[1, 2, 3, 4, 5]]
    assert (found.cut, found.dropped) == (1, 1)


def test_the_tiny_targets_own_template_and_digest() -> None:
    tiny = load_chat(str(TARGET))
    tokenizer = read_folder(TARGET).tokenizer
    assert tokenizer
    assert tiny.digest == tokenizer.vocabulary_sha256
    (turn,) = tiny.turns([{"role": "user", "content": "Count from 3 to 4."}, {"role": "assistant", "content": "3\n4"}])
    assert texts(tiny, turn) == (
        "<|im_start|>user\nCount from 3 to 4.<|im_end|>\n<|im_start|>assistant\n",
        "3\n4<|im_end|>",
    )


@pytest.mark.parametrize("target", ["./nowhere", str(Path(__file__).parent)])
def test_a_target_without_a_tokenizer_is_named(target: str) -> None:
    with pytest.raises(UsageError, match=r"the tokenizer of .* cannot be read"):
        load_chat(target)


def test_the_end_tokens_are_those_of_the_generation_config() -> None:
    settings: Any = load_chat(str(TARGET))
    assert settings.end_tokens == {2}
