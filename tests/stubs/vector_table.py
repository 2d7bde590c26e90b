"""A vector index in a few lines, which reads no filters."""

from crabpath_retrievers import EmbeddingMismatchError, VectorIndex


class Table(VectorIndex):
    """A sound index without filters."""

    description = "a table"

    def __init__(self):
        self.rows = {}

    def upsert(self, ids, vectors, texts, metadatas):
        self.rows.update(zip(ids, vectors, strict=True))

    def delete(self, ids):
        for each in ids:
            self.rows.pop(each, None)

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        self.require_no_filter(filter)
        rows = dict(self.rows)
        if any(row.shape != vector.shape for row in rows.values()):
            msg = "vectors have another dimension"
            raise EmbeddingMismatchError(msg)
        return sorted(rows, key=lambda each: -(rows[each] @ vector))[:k]

    def count(self):
        return len(self.rows)
