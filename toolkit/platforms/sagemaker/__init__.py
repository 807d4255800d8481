"""SageMaker through boto3; with another session, its stand-in on this machine."""
