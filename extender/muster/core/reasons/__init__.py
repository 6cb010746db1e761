"""Why a job waits and why it has its share, in words for its owner."""
