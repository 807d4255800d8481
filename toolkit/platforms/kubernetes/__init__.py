"""Endpoints on a Kubernetes cluster, through the official Python client."""
