"""What policies share; the core never uses it."""
