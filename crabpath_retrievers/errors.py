"""Every exception that CrabPath raises on purpose.

CrabPathError
├── InvalidInputError (also ValueError)   an argument cannot be used as given
│   └── DuplicateIdError                  one id names two different documents
├── ConfigurationError                    the store and the program do not fit together
│   ├── EmbeddingMismatchError            another embedder than the store was built with
│   ├── SchemaVersionError                the store was written by a newer release
│   └── MissingExtraError (also ImportError)  an optional dependency is not installed
├── StoreError                            a database or vector store failed
│   ├── StoreLockedError                  another process holds the store
│   ├── StoreReadOnlyError                the store cannot be written
│   ├── StoreFullError                    its disk is full
│   └── StoreUnavailableError             the store cannot be reached
├── ServiceError                          a service beside the memory failed (LangSmith)
└── NotFoundError (also KeyError)         an id or a store that does not exist
"""


class CrabPathError(Exception):
    """Base of all errors raised by CrabPath."""


class InvalidInputError(CrabPathError, ValueError):
    """An argument cannot be used as given; the message says what to pass instead."""


class DuplicateIdError(InvalidInputError):
    """One id was given to two documents with different text."""


class ConfigurationError(CrabPathError):
    """The store and the program that opens it do not fit together."""


class EmbeddingMismatchError(ConfigurationError):
    """The embedder differs from the one that the store was built with."""


class SchemaVersionError(ConfigurationError):
    """The store was written by a newer release of CrabPath."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed; the message names the install command."""


class StoreError(CrabPathError):
    """A database or vector store failed; what was acknowledged before is kept."""


class StoreLockedError(StoreError):
    """Another process holds the store."""


class ConflictError(StoreError):
    """Somebody else changed the same in the meantime; nothing of this call is kept."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """The disk of the store is full; what was acknowledged is kept."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached."""


class ServiceError(CrabPathError):
    """A service beside the memory, such as LangSmith, failed or cannot be reached."""


class NotFoundError(CrabPathError, KeyError):
    """There is no such id, or no such store."""

    def __str__(self) -> str:
        """Give the sentence itself; KeyError would put it in quotes."""
        return str(self.args[0]) if self.args else ""
