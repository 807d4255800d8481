"""A recipe of two models on a hub, for a version of vLLM and its flags."""

from __future__ import annotations

RECIPE = """
name: org
target: {{model: org/target}}
speculation: {{method: ngram, num_speculative_tokens: 3}}
engine:
  version: {version}
  max_model_len: 64
  args: {args}
platform: {{name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600}}
"""
