"""The toolkit's version, which pyproject.toml reads here, and the name that it is installed by."""

__version__ = "0.1.0"
# On the public index `toolkit` is somebody else's package.
DISTRIBUTION = "peagle-toolkit"
REINSTALL = f"Run: pip uninstall toolkit; pip install --force-reinstall --no-deps {DISTRIBUTION}"
CPU_BUILDS = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""What vLLM's build for CPUs needs: no other index has PyTorch's, beside which torchvision's for GPUs does not load."""
_EXTRAS_FOR_CPUS, _EXTRAS_WITH_PYTORCH = ("local",), ("train",)


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    command = f"pip install '{DISTRIBUTION}[{extra}]'"
    needed = extra in _EXTRAS_FOR_CPUS or (extra in _EXTRAS_WITH_PYTORCH and _has_cpu_build())
    return f"{command} {CPU_BUILDS}" if needed else command


def _has_cpu_build() -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
