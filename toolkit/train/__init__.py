"""P-EAGLE and EAGLE-3 heads: those that other trainers exported, converted for vLLM."""
