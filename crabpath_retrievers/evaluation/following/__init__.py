"""Whether a memory follows its sources as they change."""
