"""Do what a plan says: the loop over actions, the wait, the cause of a failure, the progress on the way."""
