"""Time and memory, beside plain Chroma and on a large store."""
