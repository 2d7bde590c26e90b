"""Optional parts; the base finds them by name and imports none of them."""
