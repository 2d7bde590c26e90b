"""First-stage search and vector indexes: dense, lexical and name matches, and hints."""
