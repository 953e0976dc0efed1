"""Runs migrations on the connection, and within the transaction, that `database` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
