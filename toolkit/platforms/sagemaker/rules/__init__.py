"""SageMaker's pure part: what it makes of a recipe, and every kind of resource. No SDK is imported here.

    arms, deployment, model_data     a recipe's variants, and what their containers find when they start
    kinds/                           resources, one file for each kind: wanted, read, made, changed, removed
    checks/                          findings on SageMaker's settings, and on an account
    cloudformation, compilation, jumpstart, notes, price, rollback

The local platform has the same API, and so shares all of it, with other capabilities.
"""

from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.capabilities import SAGEMAKER
from toolkit.platforms.sagemaker.rules.checks import check_sagemaker

RULES = AwsRules("sagemaker", SAGEMAKER, check_sagemaker)

__all__ = ["RULES"]
