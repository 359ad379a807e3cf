"""Alembic's environment: one file in versions/ per change of the tables, applied by `rlf.lineage.migrate`."""
