"""Environment variables that make a program run code of somebody else's choosing when it starts."""

from __future__ import annotations

CODE_VARIABLES = frozenset(
    {
        # Python: modules that are imported at start or instead of the right ones, and its switches.
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "PYTHONPLATLIBDIR",
        "PYTHONPYCACHEPREFIX",
        "PYTHONEXECUTABLE",
        "PYTHONBREAKPOINT",
        "PYTHONINSPECT",
        "PYTHONWARNINGS",
        # The dynamic loader and the C library: libraries that every program loads.
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "LD_PROFILE",
        "LD_DEBUG_OUTPUT",
        "DYLD_INSERT_LIBRARIES",
        "DYLD_LIBRARY_PATH",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        # Libraries that CUDA, NCCL, OpenMP and OpenSSL load.
        "CUDA_INJECTION64_PATH",
        "NCCL_NET_PLUGIN",
        "NCCL_PROFILER_PLUGIN",
        "NCCL_TUNER_PLUGIN",
        "OMP_TOOL_LIBRARIES",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
        # Which programs are found, and what shells and compilers start with.
        "PATH",
        "HOME",
        "SHELL",
        "ENV",
        "BASH_ENV",
        "BASHOPTS",
        "SHELLOPTS",
        "PROMPT_COMMAND",
        "PS4",
        "IFS",
        "CC",
        "CXX",
        "GIT_SSH_COMMAND",
        # Other languages.
        "NODE_OPTIONS",
        "NODE_PATH",
        "PERL5LIB",
        "PERL5OPT",
        "RUBYLIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "CLASSPATH",
    }
)
"""Who sets one of these for a model's process decides what code it runs."""
