"""The simulator: traces in, what a profile would have done out, through the same core as the live cluster."""
