"""How much learned knowledge survives when the source documents are edited and synced."""
