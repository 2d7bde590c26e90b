"""A chat model that decides which ambiguous edges of a walk are followed."""
