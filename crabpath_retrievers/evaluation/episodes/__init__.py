"""Episodes of agents: what the region MDP foretells of them."""
