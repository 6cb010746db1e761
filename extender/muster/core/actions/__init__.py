"""From a plan to requests: what is to be done, and what became of it."""
