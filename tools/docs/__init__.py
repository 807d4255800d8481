"""The pages of the documentation that are made from code and data each time the site is built: `make docs`."""
