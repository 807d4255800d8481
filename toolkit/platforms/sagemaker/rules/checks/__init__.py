"""Checks of a recipe's SageMaker settings, and of the AWS account."""
