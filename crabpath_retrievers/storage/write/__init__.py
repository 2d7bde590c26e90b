"""Writers: each applies the changes of one kind of record within a transaction of the store."""
