"""Vector indexes, embedders, and what a memory needs to find them again."""
