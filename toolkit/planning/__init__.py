"""Desired resources, existing resources, the plan to get from one to the other, and the record of what was done."""
