"""Free memory and CPU features, as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

from toolkit.platforms.local.machine import cpu_features, free_bytes


def test_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       24000000 kB\nMemAvailable:   14000000 kB\n")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16\nbugs\t\t:\n")
    assert free_bytes(tmp_path) == 14_000_000 * 1024
    assert cpu_features(tmp_path) == {"fpu", "avx2", "avx512_bf16"}


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    assert not cpu_features(tmp_path)
