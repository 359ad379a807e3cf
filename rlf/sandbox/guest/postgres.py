"""One query of a PostgreSQL database, in a transaction that can only read.

The transaction has taken its snapshot before the query runs, after which PostgreSQL refuses to make it writable; the
query goes by the extended protocol, which takes one statement alone, so that none can end the transaction.
"""

from __future__ import annotations

from typing import Any

from .sqlite import read_rows


def query(url: str, sql: str, max_rows: int, max_bytes: int, timeout_s: float) -> dict[str, Any]:
    """Runs one statement; the same values as `sqlite.query`."""
    import psycopg
    from sqlalchemy.engine import make_url

    parts = make_url(url)
    place = parts.set(drivername="postgresql").render_as_string(hide_password=False)
    options = f"-c default_transaction_read_only=on -c statement_timeout={max(int(timeout_s * 1000), 1)}"
    try:
        with psycopg.connect(place, options=options, connect_timeout=max(int(timeout_s), 2)) as connection:
            connection.execute("SELECT 1")
            with connection.cursor() as cursor:
                found = read_rows(cursor.stream(sql.encode()), max_rows, max_bytes)
                return {"outcome": "ok", "columns": [column.name for column in cursor.description or ()], **found}
    except psycopg.errors.QueryCanceled:
        return {"outcome": "timeout", "error": f"no result within {timeout_s:g} s"}
    except psycopg.OperationalError as fault:
        return {"outcome": "infra", "error": str(fault).strip()}
    except (psycopg.Error, UnicodeError) as fault:
        return {"outcome": "error", "error": str(fault).strip()}
    except MemoryError:
        return {"outcome": "memory", "error": "the result needs more memory than the query may use"}
