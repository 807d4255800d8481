"""Apply a plan: execute its actions, wait, show progress, and find the cause of a failure."""
