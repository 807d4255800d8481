"""Train P-EAGLE, EAGLE-3, DFlash and DSpark heads, and convert heads that other tools trained."""
