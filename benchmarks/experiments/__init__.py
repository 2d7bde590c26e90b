"""The phenomena that the papers claim, shown by the retriever itself."""
