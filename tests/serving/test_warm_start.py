"""What a real vLLM compiled when it first started, given to another container: with compiling on, on this CPU.

`compile` starts vLLM once with the models in one folder; `serve` has them in another one. What is taken and what is
compiled is said by PyTorch's compiler in vLLM's log. vLLM's own cache above it is looked up on GPUs only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from forked_vllm import ForkedVllm
from warm_programs import LONGEST_SECONDS, MODELS, ROOT, STARTED, Program, forget

from toolkit.engines.arguments import CONFIG_NAME

sys.path.append(str(ROOT / "containers" / "on-vllm"))
from entrypoint import Launch
from warm import warm

pytestmark = pytest.mark.serving

SAYS_WHAT_IT_TAKES = {"TORCH_LOGS": "+torch._inductor.codecache,+torch._functorch"}
TAKEN, COMPILED = "cache hit for key", "cache miss for key"


@pytest.fixture(scope="module")
def key() -> Iterator[str]:
    """No other run's, whose links lie beside this one's."""
    key = os.urandom(6).hex()
    yield key
    forget(key)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: str) -> Path:
    """The folder of artifacts that `compile` has filled."""
    folder = tmp_path_factory.mktemp("made")
    program = Program("compile", folder / "job", folder / "artifacts", key, SAYS_WHAT_IT_TAKES)
    try:
        assert program.process.wait(LONGEST_SECONDS) == 0, program.log
        assert (TAKEN in program.log, COMPILED in program.log) == (False, True)
    finally:
        program.end()
    shutil.rmtree(folder / "job")  # a job is gone with its models
    return folder / "artifacts"


def served(folder: Path, artifacts: Path, key: str, until: str, **env: str) -> str:
    """The log of a container, once it has that."""
    program = Program("serve", folder, artifacts, key, {**SAYS_WHAT_IT_TAKES, **env})
    try:
        return program.log_with(until)
    finally:
        program.kill()


def test_the_next_container_compiles_nothing(made: Path, tmp_path: Path, key: str) -> None:
    log = served(tmp_path / "endpoint", made, key, STARTED)
    assert STARTED in log
    assert (TAKEN in log, COMPILED in log) == (True, False)


def test_what_was_made_with_other_flags_is_refused_and_vllm_compiles(made: Path, tmp_path: Path, key: str) -> None:
    other = f"{int(key, 16) ^ 1:012x}"
    log = served(tmp_path / "endpoint", made, other, COMPILED, SM_VLLM_MAX_MODEL_LEN="256")
    forget(other)
    assert "was made for something else" in log
    assert (TAKEN in log, COMPILED in log) == (False, True)


def test_vllm_knows_models_by_their_path_and_so_they_get_one_that_lasts(
    vllm: ForkedVllm, tmp_path: Path, key: str
) -> None:
    env = {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key}
    own, lasting = set(), set()
    for name in ("job", "endpoint"):
        folder = shutil.copytree(MODELS / "target", tmp_path / name)
        own.add(config_hash(vllm, str(folder)))
        lasting.add(config_hash(vllm, warm(Launch([["--model", str(folder)]], env)).options[0][1]))
        shutil.rmtree(folder)  # a container is gone with its models
    assert (len(own), len(lasting)) == (2, 1)


def test_vllm_takes_the_lasting_path_before_that_of_a_file_of_settings(
    vllm: ForkedVllm, tmp_path: Path, key: str
) -> None:
    file, env = tmp_path / CONFIG_NAME, {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key}
    file.write_text(json.dumps({"max-num-seqs": 3, "speculative-config": {"model": str(MODELS / "p-eagle")}}))
    options = warm(Launch([["--config", str(file)]], env)).options
    command_lines, names = [list(chain(*options))], ["max_num_seqs", "speculative_config"]
    (found,) = vllm.run("parse_names", command_lines=command_lines, names=names)
    drafter = f"/tmp/toolkit-models-{os.getuid()}/{key}/drafter"
    assert found == {"max_num_seqs": 3, "speculative_config": {"model": drafter}}


def config_hash(vllm: ForkedVllm, model: str) -> str:
    found: str = vllm.run("config_hash", arguments={"model": model, "dtype": "float32", "max_model_len": 512})
    return found
