"""The final ranking: features of (query, node, path) and a logistic model with a shipped prior."""
