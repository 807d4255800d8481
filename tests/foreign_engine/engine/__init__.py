"""Grove, an engine of nobody: it drafts trees, pages its memory by tokens, and does not score given tokens."""
