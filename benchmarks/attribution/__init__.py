"""Whether answers are attributed to the documents that they came from."""
