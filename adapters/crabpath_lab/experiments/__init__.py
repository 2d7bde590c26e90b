"""Phenomena that the papers claim, reproduced with the retriever."""
