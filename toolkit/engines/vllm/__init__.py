"""vLLM on GPUs, and on CPUs on this machine: `rules.RULES` answers for it."""
