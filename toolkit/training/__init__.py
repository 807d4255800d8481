"""Train P-EAGLE and EAGLE-3 heads, and convert heads that other tools trained."""
