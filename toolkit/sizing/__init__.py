"""Predict the accelerator memory that a recipe needs, and the instances that it fits."""
