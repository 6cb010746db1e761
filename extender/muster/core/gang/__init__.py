"""All or nothing: a minimum is admitted whole, and what runs is retained."""
