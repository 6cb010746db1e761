"""How many GPUs each job has: the Share chain, and how its grants are carried out on nodes."""
