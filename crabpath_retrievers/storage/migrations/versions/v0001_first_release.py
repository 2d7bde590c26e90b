"""The tables of the first release, which no script makes: the oldest that can be upgraded."""

revision = "1"
down_revision = None
