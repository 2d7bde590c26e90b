"""How good regions are as a division of a corpus, and how they are drawn."""
