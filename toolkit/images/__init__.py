"""Container images: built with and without Docker, copied, and looked at through the registry API."""
