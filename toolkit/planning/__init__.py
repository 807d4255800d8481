"""What shall be, what is, and the plan that leads from one to the other; the record of what was done."""
