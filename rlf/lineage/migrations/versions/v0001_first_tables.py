"""The first tables: runs and files, their progress, and trajectories with what belongs to them.

A new database gets the tables of today at once (`rlf.lineage.migrate`), so that nothing is left to do here.
"""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Does nothing."""
