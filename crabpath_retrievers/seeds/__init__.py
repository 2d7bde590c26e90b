"""Where a walk may start: dense hits, lexical hits, nodes named in the query, the host's hints."""
