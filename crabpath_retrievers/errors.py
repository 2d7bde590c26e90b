"""Every exception that CrabPath raises on purpose.

CrabPathError
├── InvalidInputError (also ValueError)   an argument cannot be used as given
│   └── DuplicateIdError                  one id was given to two different documents
├── ConfigurationError                    the store and the program do not match
│   ├── EmbeddingMismatchError            another embedder than the store was built with
│   ├── ForkedError                    a memory was open when this process was forked
│   ├── SchemaVersionError                the store was written by a newer release
│   └── MissingExtraError (also ImportError)  an optional dependency is not installed
├── StoreError                            a database or vector store failed
│   ├── StoreLockedError                  another process uses the store
│   ├── ConflictError                     a concurrent change of the same data
│   ├── StoreReadOnlyError                the store cannot be written
│   ├── StoreFullError                    its disk is full
│   └── StoreUnavailableError             the store cannot be reached
├── AccessError                           a server refuses a request
│   ├── TokenError                        its token is missing, unknown or expired
│   └── ForbiddenError                    its token does not grant this
├── ServiceError                          an external service failed (LangSmith)
└── NotFoundError (also KeyError)         an id or a store that does not exist
"""

_FORKED = (
    "this process was forked after a memory was opened, which it cannot use: open it in each "
    "worker and none before the fork, or start workers with spawn"
)


class CrabPathError(Exception):
    """Base of all errors raised by CrabPath."""


class InvalidInputError(CrabPathError, ValueError):
    """An argument cannot be used as given; the message says what to pass instead."""


class DuplicateIdError(InvalidInputError):
    """One id was given to two documents with different text."""


class ConfigurationError(CrabPathError):
    """The store and the program that opens it do not match."""


class EmbeddingMismatchError(ConfigurationError):
    """The embedder differs from the one that the store was built with."""


class ForkedError(ConfigurationError):
    """A memory was open when this process was forked, and cannot be used in it."""

    def __init__(self, message: str = _FORKED) -> None:  # pools send errors to their parent
        """Say what to do."""
        super().__init__(message)


class SchemaVersionError(ConfigurationError):
    """The store was written by a newer release of CrabPath."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed; the message names the install command."""


class StoreError(CrabPathError):
    """A database or vector store failed; acknowledged changes are kept."""


class StoreLockedError(StoreError):
    """Another process uses the store."""


class ConflictError(StoreError):
    """Another call changed the same data at once; nothing of this call is stored."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """The disk of the store is full; acknowledged changes are kept."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached."""


class AccessError(CrabPathError):
    """A server refuses a request because of who sends it."""


class TokenError(AccessError):
    """The token of a request is missing, unknown or expired."""


class ForbiddenError(AccessError):
    """The token of a request does not grant the namespace or the right."""


class ServiceError(CrabPathError):
    """An external service, such as LangSmith, failed or cannot be reached."""


class NotFoundError(CrabPathError, KeyError):
    """An id or a store does not exist."""

    def __str__(self) -> str:
        """The message; ``KeyError`` would put it in quotes."""
        return str(self.args[0]) if self.args else ""
