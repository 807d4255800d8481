"""Training of drafters: the methods (`peagle`, `eagle3`), and the tiny models made with them (`tiny`)."""
