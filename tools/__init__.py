"""What maintains the project, and is no part of the wheel: generated READMEs, the tiny models."""
