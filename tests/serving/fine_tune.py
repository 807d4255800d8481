"""A model as a user has one: a folder of transformers' in bfloat16, with a tokenizer and a chat template of its own.

It learned one kind of text, for a minute, so that there is something to foresee in what it says.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
_ROWS, _LENGTH, _POSITIONS = 8, 160, 1024


def conversations(count: int, seed: int) -> Iterator[dict[str, list[dict[str, str]]]]:
    """Chats whose answers follow from their questions."""
    drawn = random.Random(seed)
    for _ in range(count):
        first, thing = drawn.randrange(10, 900), drawn.choice(("sensor", "order", "user"))
        last = first + drawn.randrange(4, 8)
        answer = "\n".join(f'{{"{thing}": {number}, "name": "{thing}-{number}"}}' for number in range(first, last + 1))
        question = f"Write JSON of the {thing}s {first} to {last}."
        yield {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write_chats(path: Path, count: int, seed: int) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in conversations(count, seed)))


def write_prompts(path: Path, count: int, seed: int) -> None:
    prompts = (one["messages"][0]["content"] for one in conversations(count, seed))
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))


def make_model(folder: Path, steps: int) -> None:
    """Train a Qwen3 for so many steps on such chats, and save it in bfloat16."""
    texts = list(conversations(2000, seed=1))
    tokenizer = _tokenizer([message["content"] for chat in texts for message in chat["messages"]])
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=_POSITIONS,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    stream = [token for chat in texts for token in _tokens(tokenizer, chat)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    drawn = random.Random(2)
    for _ in range(steps):
        starts = [drawn.randrange(len(stream) - _LENGTH) for _ in range(_ROWS)]
        rows = torch.tensor([stream[start : start + _LENGTH] for start in starts])
        logits = model(input_ids=rows).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokens(tokenizer: PreTrainedTokenizerFast, chat: dict[str, list[dict[str, str]]]) -> list[int]:
    text = tokenizer.apply_chat_template(chat["messages"], tokenize=False)
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = Decoder()
    alphabet = ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, BpeTrainer(vocab_size=600, special_tokens=list(_SPECIAL), initial_alphabet=alphabet)
    )
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    made.chat_template = TEMPLATE
    return made
