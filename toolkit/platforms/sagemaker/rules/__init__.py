"""SageMaker's pure part: its resources for a recipe. No SDK is imported here.

    arms, deployment, model_data     a recipe's variants, and the model data of their containers
    kinds/                           resources, one file for each kind: desire, read, create, update, delete
    checks/                          findings on SageMaker's settings, and on an account
    cloudformation, compilation, jumpstart, notes, price, rollback

The local platform has the same API, so it shares all of this, with other capabilities.
"""

from toolkit.platforms.sagemaker.keys import SECTIONS
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.capabilities import SAGEMAKER
from toolkit.platforms.sagemaker.rules.checks import check_sagemaker

RULES = AwsRules("sagemaker", SAGEMAKER, SECTIONS, check_sagemaker)

__all__ = ["RULES"]
