"""`containers/vllm/serve` with what an earlier start compiled: taken, or refused with a reason; vLLM always starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import warm
from compiling import Compiling
from entrypoint import Launch
from neuron_machine import Machine
from test_vllm_serve import CONTAINERS, Container

# As FlashInfer has its kernels built: with files that the compiler names, which ninja holds in a log of its own.
KERNELS = """
rule compiler
  command = cp $in $out && echo $out: header > $out.d
  depfile = $out.d
  deps = gcc
build kernel.o: compiler kernel.cu
"""
PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"
PARTS = {"max_model_len": "512", "version": "0.32.0"}


@pytest.fixture
def key() -> Iterator[str]:
    """No other run's, whose links lie beside this one's."""
    key = os.urandom(6).hex()
    yield key
    shutil.rmtree(links(key), ignore_errors=True)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def links(key: str) -> Path:
    return Path(f"/tmp/toolkit-models-{os.getuid()}/{key}")


def made(folder: Path, key: str, parts: Mapping[str, object] = PARTS) -> dict[str, str]:
    """Artifacts as `compile` leaves them, and the variables that name them."""
    (folder / "vllm" / "torch_compile_cache").mkdir(parents=True)
    (folder / "vllm" / "torch_compile_cache" / "model").write_text("compiled")
    (folder / "artifacts.json").write_text(json.dumps({"key": key, "parts": parts}))
    return variables(folder, key)


def variables(folder: Path, key: str) -> dict[str, str]:
    return {
        "TOOLKIT_ARTIFACTS": str(folder),
        "TOOLKIT_ARTIFACTS_KEY": key,
        "TOOLKIT_ARTIFACTS_PARTS": json.dumps(PARTS),
    }


def served(container: Container, env: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """What vLLM was given, and the log."""
    (container.model_dir / "config.json").touch()
    done = container.run(env)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said, done.stderr


def cached(container: Container) -> list[str]:
    root = container.base_dir / ".cache" / "vllm"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_what_was_compiled_is_where_vllm_looks_for_it(container: Container, tmp_path: Path, key: str) -> None:
    _, log = served(container, made(tmp_path / "made", key))
    assert cached(container) == ["torch_compile_cache/model"]
    assert f"vLLM takes what an earlier start compiled, from {tmp_path / 'made'}" in log


def test_ninja_builds_no_kernel_again(container: Container, tmp_path: Path, key: str) -> None:
    machine, place = Machine(tmp_path / "job"), tmp_path / "place"
    place.mkdir()
    for name, text in (("build.ninja", KERNELS), ("kernel.cu", ""), ("header", "")):
        (place / name).write_text(text)
    assert "[1/1]" in ninja(place)
    env = {**variables(machine.artifacts, key), "VLLM_CACHE_ROOT": str(place)}
    subprocess.run([CONTAINERS / "vllm" / "compile"], env={**machine.variables, **env, "PATH": PATH}, check=True)
    served(container, {**env, "VLLM_CACHE_ROOT": str(tmp_path / "endpoint")})
    assert "no work to do" in ninja(tmp_path / "endpoint")


@pytest.mark.parametrize("times", ["", "[1]", '{"torch_compile_cache/model": "now"}', f'{{"x": {2**63}}}'])
def test_times_that_are_none_stop_nothing(container: Container, tmp_path: Path, key: str, times: str) -> None:
    env = made(tmp_path / "made", key)
    (tmp_path / "made" / "times.json").write_text(times.replace('"x"', '"torch_compile_cache/model"'))
    served(container, env)
    assert cached(container) == ["torch_compile_cache/model"]


def ninja(folder: Path) -> str:
    return subprocess.run(
        [Path(sys.executable).with_name("ninja"), "-C", folder], capture_output=True, text=True, check=True
    ).stdout


def test_what_was_made_for_other_flags_is_refused_with_the_flag(container: Container, tmp_path: Path, key: str) -> None:
    made(tmp_path / "made", "0123456789ab", {**PARTS, "max_model_len": "1024"})
    _, log = served(container, variables(tmp_path / "made", key))
    assert cached(container) == []
    assert "was made for something else\n  max_model_len: '1024', and '512' is wanted" in log


def test_what_has_no_record_is_half_made_and_refused(container: Container, tmp_path: Path, key: str) -> None:
    env = made(tmp_path / "made", key)
    (tmp_path / "made" / "artifacts.json").unlink()
    _, log = served(container, env)
    assert cached(container) == []
    assert f"{tmp_path / 'made'} has none" in log


def test_links_in_it_lead_nowhere(container: Container, tmp_path: Path, key: str) -> None:
    env = made(tmp_path / "made", key)
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("of the host")
    (tmp_path / "made" / "vllm" / "file").symlink_to(tmp_path / "secret")
    (tmp_path / "made" / "vllm" / "folder").symlink_to(tmp_path / "folder")
    served(container, env)
    assert cached(container) == ["torch_compile_cache/model"]


def test_more_than_a_cache_can_be_is_refused(container: Container, tmp_path: Path, key: str) -> None:
    env = made(tmp_path / "made", key)
    with (tmp_path / "made" / "vllm" / "large").open("wb") as file:
        file.truncate(warm.LARGEST + 1)  # without blocks on the disk
    _, log = served(container, env)
    assert cached(container) == []
    assert "are allowed" in log


def test_a_place_that_cannot_be_written_to_stops_nothing(container: Container, tmp_path: Path, key: str) -> None:
    _, log = served(container, {**made(tmp_path / "made", key), "VLLM_CACHE_ROOT": "/dev/null/cache"})
    assert "what an earlier start compiled is not used" in log


def test_models_have_the_same_path_wherever_they_are(container: Container, tmp_path: Path, key: str) -> None:
    """vLLM's hash of a configuration has their paths in it: tests/serving/test_warm_start.py."""
    (tmp_path / "head").mkdir()
    config = json.dumps({"method": "eagle3", "model": str(tmp_path / "head")})
    env = {**made(tmp_path / "made", key), "SM_VLLM_SPECULATIVE_CONFIG": config}
    argv = served(container, env)[0]["argv"]
    assert argv[argv.index("--model") + 1] == f"{links(key)}/target"
    assert json.loads(argv[argv.index("--speculative-config") + 1])["model"] == f"{links(key)}/drafter"
    assert (links(key) / "target").resolve() == container.model_dir
    assert (links(key) / "drafter").resolve() == tmp_path / "head"


def test_a_drafter_in_a_file_of_settings_has_the_same_path_too(container: Container, tmp_path: Path, key: str) -> None:
    (tmp_path / "head").mkdir()
    file = tmp_path / "engine.yaml"
    file.write_text(json.dumps({"speculative-config": {"method": "eagle3", "model": str(tmp_path / "head")}}))
    argv = served(container, {**made(tmp_path / "made", key), "SM_VLLM_CONFIG": str(file)})[0]["argv"]
    lasting = {"method": "eagle3", "model": f"{links(key)}/drafter"}
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == lasting
    assert argv[argv.index("--config") + 1] == str(file)


@pytest.mark.parametrize("text", ["port: 1", "[]", "{}", '{"speculative-config": "{}"}', '{"speculative-config": 1}'])
def test_any_other_file_of_settings_stays_as_it_is(container: Container, tmp_path: Path, key: str, text: str) -> None:
    (tmp_path / "engine.yaml").write_text(text)
    argv = served(container, {**made(tmp_path / "made", key), "SM_VLLM_CONFIG": str(tmp_path / "engine.yaml")})[0][
        "argv"
    ]
    assert "--speculative-config" not in argv
    assert argv[argv.index("--model") + 1] == f"{links(key)}/target"


def test_who_comes_second_with_a_key_leaves_the_first_its_model(tmp_path: Path, key: str) -> None:
    """Two endpoints of this machine: without the second's folder the first would have none."""
    first, second = (tmp_path / name for name in ("first", "second"))
    first.mkdir()
    second.mkdir()
    assert model_of(first, key) == f"{links(key)}/target"
    assert model_of(second, key) == str(second)
    assert (links(key) / "target").resolve() == first
    first.rmdir()
    assert model_of(second, key) == f"{links(key)}/target"
    assert (links(key) / "target").resolve() == second


def model_of(folder: Path, key: str) -> str:
    started = Launch([["--model", str(folder)]], {"HOME": "/", "TOOLKIT_ARTIFACTS_KEY": key})
    path: str = warm.warm(started).options[0][1]
    return path


def test_models_of_the_hub_keep_their_names(container: Container, tmp_path: Path, key: str) -> None:
    config = json.dumps({"method": "eagle3", "model": "org/head"})
    env = {**made(tmp_path / "made", key), "SM_VLLM_MODEL": "org/model", "SM_VLLM_SPECULATIVE_CONFIG": config}
    argv = served(container, env)[0]["argv"]
    assert argv[argv.index("--model") + 1] == "org/model"
    assert json.loads(argv[argv.index("--speculative-config") + 1])["model"] == "org/head"


def test_without_a_key_nothing_changes(container: Container) -> None:
    said, log = served(container, {})
    assert said["argv"][said["argv"].index("--model") + 1] == str(container.model_dir)
    assert "earlier start" not in log


def test_a_folder_that_others_may_write_to_is_not_taken_for_links(
    container: Container, tmp_path: Path, key: str
) -> None:
    links(key).mkdir(parents=True)
    links(key).chmod(0o777)
    said, log = served(container, made(tmp_path / "made", key))
    assert said["argv"][said["argv"].index("--model") + 1] == str(container.model_dir)
    assert f"{links(key)} is not this user's alone" in log


def test_a_key_that_leads_elsewhere_is_not_taken(container: Container, tmp_path: Path) -> None:
    said, log = served(container, {"TOOLKIT_ARTIFACTS_KEY": "../../elsewhere"})
    assert said["argv"][said["argv"].index("--model") + 1] == str(container.model_dir)
    assert "is not a key" in log


def test_all_that_is_found_out_lies_in_one_folder(tmp_path: Path, key: str) -> None:
    env = warm.warm(Launch([], {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key})).env
    root = tmp_path / ".cache" / "vllm"
    assert env["VLLM_CACHE_ROOT"] == str(root)
    assert {Path(env[name]).parent for name in warm.CACHES} == {root}


def test_a_root_in_the_home_is_where_vllm_looks(tmp_path: Path, key: str) -> None:
    given = {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key, "VLLM_CACHE_ROOT": "~/mine"}
    env = warm.warm(Launch([], given)).env
    assert (env["VLLM_CACHE_ROOT"], env["TRITON_CACHE_DIR"]) == (f"{tmp_path}/mine", f"{tmp_path}/mine/triton")


def test_a_cache_that_the_recipe_has_elsewhere_stays_there(tmp_path: Path, key: str) -> None:
    given = {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key, "TRITON_CACHE_DIR": "/mnt/triton"}
    assert warm.warm(Launch([], given)).env["TRITON_CACHE_DIR"] == "/mnt/triton"


def test_what_an_earlier_job_left_half_made_is_not_kept(tmp_path: Path, key: str) -> None:
    made(tmp_path / "made", key)
    found: Compiling = warm.compiling(
        Launch([], {"HOME": str(tmp_path), "TOOLKIT_ARTIFACTS_KEY": key}), tmp_path / "made"
    )
    assert (found.place, found.kept) == (tmp_path / ".cache" / "vllm", tmp_path / "made" / "vllm")
    assert [path for path in found.kept.rglob("*") if path.is_file()] == []
