"""Train P-EAGLE, EAGLE-3 and DFlash heads, and convert heads that other tools trained."""
