"""Free memory, cores and CPU features, as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolkit.memory import free_bytes
from toolkit.platforms.local.machine import cores, cpu_features


def test_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       24000000 kB\nMemAvailable:   14000000 kB\n")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\nbugs\t\t:\n")
    assert free_bytes(tmp_path, tmp_path) == 14_000_000 * 1024
    assert cpu_features(tmp_path) == {"fpu", "avx2", "avx512_bf16"}


@pytest.mark.parametrize(
    ("folder", "limit", "usage", "dropped_first"),
    [
        pytest.param(".", "memory.max", "memory.current", "inactive_file", id="version 2"),
        pytest.param("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", id="version 1"),
    ],
)
@pytest.mark.parametrize(
    ("limits", "free"),
    [
        pytest.param("4000000000", 1_750_000_000, id="a limit"),
        pytest.param("2000000000", 0, id="used up"),
        pytest.param("max", 14_000_000 * 1024, id="none"),
        pytest.param("9223372036854771712", 14_000_000 * 1024, id="none of version 1"),
    ],
)
def test_of_a_container_what_its_limit_leaves(
    tmp_path: Path, folder: str, limit: str, usage: str, dropped_first: str, limits: str, free: int
) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:   14000000 kB\n")
    group = tmp_path / folder
    group.mkdir(exist_ok=True)
    (group / limit).write_text(f"{limits}\n")
    (group / usage).write_text("2500000000\n")
    (group / "memory.stat").write_text(f"active_file 7\n{dropped_first} 250000000\n")
    assert free_bytes(tmp_path, tmp_path) == free


@pytest.mark.parametrize(
    ("line", "folder", "limit", "usage"),
    [
        pytest.param("0::/batch/job/step", ".", "memory.max", "memory.current", id="version 2"),
        pytest.param(
            "4:cpuset,memory:/batch/job/step",
            "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            id="version 1",
        ),
    ],
)
def test_of_a_job_or_a_unit_what_the_least_limit_above_it_leaves(
    tmp_path: Path, line: str, folder: str, limit: str, usage: str
) -> None:
    """Slurm and systemd limit a group that is not the root, and of its processes each may be in one below."""
    (tmp_path / "meminfo").write_text("MemAvailable:   14000000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"garbage\n\n9:name=systemd:/elsewhere\n{line}\n")
    for group, most in (("batch", "max"), ("batch/job", "3000000000"), ("batch/job/step", "9000000000")):
        (tmp_path / folder / group).mkdir(parents=True)
        (tmp_path / folder / group / limit).write_text(f"{most}\n")
        (tmp_path / folder / group / usage).write_text("1000000000\n")
        (tmp_path / folder / group / "memory.stat").write_text("active_file 7\n")
    assert free_bytes(tmp_path, tmp_path) == 2_000_000_000


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) > 0
    assert not cpu_features(tmp_path)
    assert cores(tmp_path, tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("core_of_cpu", "allowed", "expected"),
    [
        pytest.param([0, 0, 1, 1], 4, 2, id="two CPUs share a core"),
        pytest.param([0, 1, 2, 3], 2, 2, id="the process may use some of them"),
        pytest.param([None] * 4, 4, 4, id="the kernel does not say which share a core"),
    ],
)
def test_physical_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core_of_cpu: list[int | None], allowed: int, expected: int
) -> None:
    cpus = [
        f"processor\t: {cpu}\n" + ("" if core is None else f"physical id\t: 0\ncore id\t\t: {core}\n")
        for cpu, core in enumerate(core_of_cpu)
    ]
    (tmp_path / "cpuinfo").write_text("\n".join(cpus))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    assert cores(tmp_path, tmp_path) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"cpu.max": "150000 100000"}, 2, id="version 2"),
        pytest.param({"cpu.max": "max 100000"}, 8, id="all"),
        pytest.param({"job/cpu.max": "max 100000", "cpu.max": "300000 100000"}, 3, id="of the group above"),
        pytest.param({"job/cpu.max": "20000 100000"}, 1, id="less than one"),
        pytest.param({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4, id="version 1"),
        pytest.param({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8, id="all of version 1"),
    ],
)
def test_cores_are_those_of_the_share_of_cpu_time(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:cpu,cpuacct:/\n0::/job\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cores(tmp_path, tmp_path) == expected
