"""What the region MDP predicts of episodes of agents: how they end, and what is done next."""
