"""The first tables that were released. Earlier revisions were of checkouts; `rlf.lineage.migrate` refuses those.

A new database gets the tables of today at once, so that nothing is left to do here.
"""

revision = "0008"
down_revision = None


def upgrade() -> None:
    """Does nothing."""
