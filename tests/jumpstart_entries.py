"""Entries of JumpStart's hub, made by hand: the field names of sagemaker-core 2.27.0 (jumpstart/models.py) and the
values of the SDK's own test data (openai-reasoning-gpt-oss-20b 3.38.0, meta-textgeneration-llama-3-1-70b 2.16.2), cut
short. None was read from the live hub."""

from __future__ import annotations

import json
from typing import Any

GPT_OSS = "openai-reasoning-gpt-oss-20b"
LLAMA = "meta-textgeneration-llama-3-1-70b"
REGISTRY = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
VLLM = f"{REGISTRY}/vllm:0.18.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
LMI = f"{REGISTRY}/djl-inference:0.34.0-lmi16.0.0-cu128"
HEAD = "s3://jumpstart-cache-prod-us-west-2/lmi-eagle-heads/models/gpt-oss-20b-p-eagle/"
WEIGHTS = (
    "s3://jumpstart-cache-prod-us-west-2/openai-reasoning/openai-reasoning-gpt-oss-20b/artifacts/inference/v1.0.0/"
)


def gpt_oss() -> dict[str, Any]:
    """The P-EAGLE model: `lmi-optimized` drafts on vLLM, but runs LMI on g5; `lmi` drafts nowhere."""
    types = ["ml.g7e.2xlarge", "ml.p5.48xlarge", "ml.g5.12xlarge"]
    config = {
        "model": "/opt/ml/additional-model-data-sources/eagle",
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    }
    weights = {
        "HostingArtifactUri": WEIGHTS,
        "HostingArtifactS3DataType": "S3Prefix",
        "HostingArtifactCompressionType": "None",
        "DefaultInferenceInstanceType": "ml.g7e.2xlarge",
        "SupportedInferenceInstanceTypes": types,
        "InferenceEnableNetworkIsolation": True,
    }
    document = {
        "Url": "https://huggingface.co/openai/gpt-oss-20b",
        "ModelTypes": ["OPEN_WEIGHTS"],
        "ADayWillBringNewFields": True,
        **weights,
        "InferenceConfigRankings": {"overall": {"Description": "default", "Rankings": ["lmi-optimized", "lmi"]}},
        "InferenceConfigs": {
            "lmi": {"ComponentNames": ["lmi"]},
            "lmi-optimized": {
                "ComponentNames": ["lmi-optimized"],
                "AccelerationConfigs": [{"Type": "Speculative-Decoding", "Enabled": True}],
            },
        },
        "InferenceConfigComponents": {
            "lmi": {
                **weights,
                "HostingEcrUri": LMI,
                "ContainerStartupHealthCheckTimeout": 1200,
                "InferenceEnvironmentVariables": _variables({"HF_MODEL_ID": "/opt/ml/model"}),
            },
            "lmi-optimized": {
                **weights,
                "ContainerStartupHealthCheckTimeout": 3600,
                "ModelDataDownloadTimeout": 3600,
                "HostingAdditionalDataSources": {
                    "speculative_decoding": [
                        {
                            "ChannelName": "eagle",
                            "ArtifactVersion": "v1.0.0",
                            "Provider": {"Name": "JumpStart", "Classification": "non-gated"},
                            "S3DataSource": {"CompressionType": "None", "S3DataType": "S3Prefix", "S3Uri": HEAD},
                        }
                    ]
                },
                "InferenceEnvironmentVariables": _variables(
                    {
                        "HF_MODEL_ID": "/opt/ml/model",
                        "SAGEMAKER_MODEL_SERVER_WORKERS": 1,
                        "SM_VLLM_MAX_MODEL_LEN": "8192",
                        "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(config),
                        "SM_VLLM_TENSOR_PARALLEL_SIZE": "1",
                    }
                ),
                "HostingInstanceTypeVariants": {
                    "Variants": {
                        "g7e": {"Properties": {"ImageUri": VLLM}},
                        "p5": {"Properties": {"ImageUri": VLLM}},
                        "g5": {"Properties": {"ImageUri": LMI}},
                        "ml.g7e.2xlarge": {"Properties": {"EnvironmentVariables": {"TENSOR_PARALLEL_DEGREE": "1"}}},
                        "ml.p5.48xlarge": {"Properties": {"EnvironmentVariables": {"TENSOR_PARALLEL_DEGREE": "8"}}},
                    }
                },
            },
        },
    }
    return _content(GPT_OSS, "3.38.0", document)


def gated() -> dict[str, Any]:
    """A model and a drafter that each come under a licence of their own."""
    bucket = "s3://jumpstart-private-cache-prod-us-west-2/meta-textgeneration"
    licences = "s3://jumpstart-cache-prod-us-west-2/fmhMetadata/eula"
    document = {
        "Url": "https://ai.meta.com/resources/models-and-libraries/llama-downloads/",
        "GatedBucket": True,
        "HostingEcrUri": VLLM,
        "HostingArtifactUri": f"{bucket}/meta-textgeneration-llama-3-1-70b/artifacts/inference/v2.0.0/",
        "HostingEulaUri": f"{licences}/llama3_1Eula.txt",
        "HostingAdditionalDataSources": {
            "speculative_decoding": [
                {
                    "ChannelName": "draft_model",
                    "HostingEulaUri": f"{licences}/llama3_2Eula.txt",
                    "Provider": {"Name": "JumpStart", "Classification": "gated"},
                    "S3DataSource": {"S3Uri": f"{bucket}/meta-textgeneration-llama-3-2-1b/artifacts/v1.0.0/"},
                }
            ]
        },
        "DefaultInferenceInstanceType": "ml.p4d.24xlarge",
        "SupportedInferenceInstanceTypes": ["ml.p4d.24xlarge"],
    }
    return _content(LLAMA, "2.16.2", document)


def _variables(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"Name": name, "Default": value, "Scope": "container", "Type": "text"} for name, value in values.items()]


def _content(model_id: str, version: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "HubContentName": model_id,
        "HubContentType": "Model",
        "HubContentVersion": version,
        "HubContentArn": f"arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{model_id}/{version}",
        "HubContentDocument": document,
    }
