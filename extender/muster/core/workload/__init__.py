"""What a job is: whose pods are its own, and what they and its owner declare."""
