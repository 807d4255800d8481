"""The public functions: each composes the stages of the one road with the platform of the recipe."""
