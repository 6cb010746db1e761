"""What readers see of a cycle, and what the extender verbs answer from it."""
