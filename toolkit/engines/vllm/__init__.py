"""vLLM on GPUs, and on this machine's CPU."""
