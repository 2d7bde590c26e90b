"""Whether the libraries for measuring are installed."""

from importlib.util import find_spec

from crabpath_retrievers.errors import MissingExtraError

_NEEDED = (
    "bm25s",
    "ir_measures",
    "langchain",
    "langchain_chroma",
    "langchain_classic",
    "matplotlib",
    "psutil",
    "scipy",
    "sklearn",
)


def require_eval_extra() -> None:
    """Refuse to start without them, rather than to fail halfway.

    Raises:
        MissingExtraError: One of them is missing.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        msg = f"measuring needs {', '.join(missing)}: pip install 'crabpath-retrievers[local,eval]'"
        raise MissingExtraError(msg)
