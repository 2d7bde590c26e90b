"""Archives: what a store holds, or what a namespace has learned, in one portable file."""
