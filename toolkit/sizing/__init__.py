"""Accelerator memory that a recipe takes, and the instances that it fits: the engine's own plan, made beforehand."""
