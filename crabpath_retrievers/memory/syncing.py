"""Following sources as they change."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.ingest.sync_plan import SyncPlan
from crabpath_retrievers.ingest.syncing import Scope, Sync
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.query import listed, path_of, require_flags, require_splitter, texts_of
from crabpath_retrievers.sources import Folder, read_folder, require_documents
from crabpath_retrievers.text import is_blank

Place = str | os.PathLike[str]


class Syncing(Parts):
    """How a memory follows its sources."""

    def sync(
        self,
        given: Place | Iterable[Place] | Iterable[Document],
        *,
        roots: Sequence[str] = (),
        splitter: TextSplitter | None = None,
        split: bool = True,
        allow_empty: bool = False,
        dry_run: bool = False,
    ) -> SyncPlan:
        """Bring the memory to what its sources hold now, and keep what was learned about it.

        A section that was edited, moved to another file, or whose file was renamed keeps its id
        and with it weights, counts, use, episodes and notes, in every namespace. A section that is
        gone retires: no query finds it, but what was learned about it counts again once a sync
        brings its text back; ``forget`` deletes it for good. Documents from elsewhere stay.
        Nothing is written, and nothing embedded, where nothing changed. Files and documents
        without text hold no section, and one warning names them.

        Args:
            given: Files and directories, or LangChain documents as a loader gives them. Of a
                directory, all that it no longer has retires; of documents, their own sections.
            roots: With documents: where sources begin of which these are all documents, such as
                ``"https://docs.example.com/"``; sections of other documents there retire.
            splitter: Your own splitter; it should be the one that the documents were added with.
            split: False when the documents are chunks already.
            allow_empty: Let everything of a source retire that holds no documents.
            dry_run: Only plan; nothing is written.

        Returns:
            What was changed, or with ``dry_run`` would be.

        Raises:
            InvalidInputError: A path does not exist, cannot be read or holds no documents, or a
                document cannot be used; nothing was changed.
            EmbeddingMismatchError: The memory was built with another embedder.
            StoreError: A store failed; what was interrupted is finished by the next ingest.
        """
        self._require_open()
        require_flags(split=split, allow_empty=allow_empty, dry_run=dry_run)
        require_splitter(splitter)
        documents, places = _sorted(given)
        if places and roots:
            msg = "roots are for documents: a path is its own root, leave them out"
            raise InvalidInputError(msg)
        told = places or not all(is_blank(document.page_content) for document in documents)
        if not (told or (roots and allow_empty)):
            msg = "nothing was given to sync: give files, directories or documents with text"
            raise InvalidInputError(msg)
        folders = [self._read(place) for place in places]
        if not allow_empty:
            require_documents(folders)
        skipped = tuple(source for folder in folders for source in folder.skipped)
        scope = Scope(
            tuple(texts_of([*texts_of(roots, name="roots"), *(f.root for f in folders)])),
            tuple(alias for folder in folders for alias in folder.aliases),
            frozenset(skipped),
        )
        keys = self.settings.links.metadata_keys
        chunking = Chunking(self.settings.ingest, splitter, split, keys)
        read = (chain(folder.documents, folder.blank) for folder in folders)
        nodes = chunking.nodes(chain(documents, *read))
        sync = Sync(self._ingest, self._identity, self.settings.sync.new_version_similarity)
        return replace(sync.run(nodes, scope, dry_run=dry_run), skipped=skipped)

    def _read(self, place: Place) -> Folder:
        return read_folder(
            path_of("what to sync", place),
            held=lambda root: bool(self.store.catalog.under(root)),
            largest=self.settings.sync.max_file_bytes,
        )


def _sorted(
    given: Place | Iterable[Place] | Iterable[Document],
) -> tuple[list[Document], list[Place]]:
    """Documents and paths of what was given.

    Raises:
        InvalidInputError: It is neither.
    """
    ones = [given] if isinstance(given, (str, os.PathLike)) else listed("what to sync", given)
    documents = [one for one in ones if isinstance(one, Document)]
    places = [one for one in ones if isinstance(one, (str, os.PathLike))]
    if len(documents) + len(places) != len(ones) or (documents and places):
        msg = "sync takes files and directories, or LangChain documents, not both and nothing else"
        raise InvalidInputError(msg)
    return documents, places
