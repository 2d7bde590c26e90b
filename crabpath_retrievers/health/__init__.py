"""How well a memory is: eight metrics, the ranges in which they are well, and their history."""
