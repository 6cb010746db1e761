"""In place: which process may use which device, and in which order it changes hands (the paper's GPU Coordinator)."""
