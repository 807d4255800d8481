from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tools.tiny.corpus import Example, examples
from tools.tiny.tokenizer import MASK, SPECIAL_TOKENS, chat_text, save_tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([chat_text(example) for example in examples(1, 50)], 512)


@pytest.mark.parametrize("text", ["a 12 [x_y] = é\n\n  z", '{"id": 41}', "def get_it(self):\n    return 7"])
def test_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_are_the_first_ones_and_never_split(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3]
    assert tokenizer.encode(MASK).ids == [3]


def test_every_digit_is_a_token(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("2048").tokens == ["2", "0", "4", "8"]


def test_the_chat_template_writes_what_was_trained_on(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path, max_length=1024)
    chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    loaded = AutoTokenizer.from_pretrained(tmp_path)

    assert loaded.apply_chat_template(chat, tokenize=False) == chat_text(Example("Hello", "Hi"))
    prompt = loaded.apply_chat_template(chat[:1], tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
