"""Runs revisions on the connection that `rlf.lineage.migrate` hands over, inside its transaction."""

from alembic import context

from rlf.lineage.migrate import VERSION_TABLE
from rlf.lineage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
