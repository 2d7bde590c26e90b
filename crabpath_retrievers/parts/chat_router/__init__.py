"""A chat model as router: it decides which ambiguous edges a walk follows."""
