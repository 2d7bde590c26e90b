"""Encoding of vectors in the database."""

from collections.abc import Sequence

import numpy as np

from crabpath_retrievers.graph import Vector

_STORED = np.dtype("<f2")  # half precision: cosines keep three decimals at half the bytes


def encode_vector(vector: Vector) -> bytes:
    """Encode a unit vector, shape ``[d]``, in half precision."""
    return np.asarray(vector, dtype=_STORED).tobytes()


def decode_vector(data: bytes) -> Vector:
    """The inverse of :func:`encode_vector`; a read-only view in half precision."""
    return np.frombuffer(data, dtype=_STORED)


def decode_vectors(packed: Sequence[bytes]) -> Vector:
    """Decode at least one vector, all of one size, into shape ``[n, d]``."""
    return decode_vector(b"".join(packed)).reshape(len(packed), -1)
