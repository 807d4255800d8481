"""Convert P-EAGLE and EAGLE-3 heads that were trained with other tools for vLLM."""
