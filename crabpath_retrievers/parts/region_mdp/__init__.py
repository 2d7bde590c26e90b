"""The region MDP: what agents learn from episodes."""
