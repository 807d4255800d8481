"""What a user wants: the recipe file, what it means, and the facts of its models."""
