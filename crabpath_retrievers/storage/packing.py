"""Vectors as they are stored."""

from collections.abc import Sequence

import numpy as np

from crabpath_retrievers.graph import Vector

_STORED = np.dtype("<f2")  # half precision: cosines keep three decimals at half the bytes


def pack(vector: Vector) -> bytes:
    """A unit vector as stored."""
    return np.asarray(vector, dtype=_STORED).tobytes()


def unpack(data: bytes) -> Vector:
    """The inverse of :func:`pack`; half precision, read-only view."""
    return np.frombuffer(data, dtype=_STORED)


def unpack_all(packed: Sequence[bytes]) -> Vector:
    """As :func:`unpack` for vectors of one size, at least one; shape ``[n, d]``."""
    return unpack(b"".join(packed)).reshape(len(packed), -1)
