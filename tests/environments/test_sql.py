"""A database for each trajectory, declared statements as its tools, and scores of its final state."""

import asyncio
import pickle
import sqlite3
from contextlib import closing

import pytest

from rlf.core import RlfError
from rlf.environments import EnvSpec
from rlf.environments.world import fill
from rlf.types import Message, Outcome, Task, ToolCall
from tests.postgres import postgres_server

from .conformance.sql import left_over
from .conftest import STOP, call

TEXT = {"type": "string"}
GOLD = [{"name": "cancel", "arguments": {"number": "12"}}]
TASK = Task("t", (Message("user", "Cancel order 12."),), columns={"number": "12", "gold": GOLD})


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    file = tmp_path_factory.mktemp("sql") / "orders.sqlite"
    with closing(sqlite3.connect(file)) as seed:
        seed.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, state TEXT CHECK (state <> 'lost'))")
        seed.executemany("INSERT INTO orders VALUES (?, ?)", [("11", "open"), ("12", "open"), ("13", "sent")])
        seed.commit()
    return {
        "kind": "sql",
        "database": str(file),
        "statements": {
            "look": {
                "description": "Look at an order.",
                "sql": "SELECT state FROM orders WHERE number = :number",
                "parameters": {"number": TEXT},
                "otherwise": "there is no order {number}",
            },
            "cancel": {
                "description": "Cancel an open order.",
                "sql": "UPDATE orders SET state = 'cancelled' WHERE number = :number AND state = 'open'",
                "parameters": {"number": TEXT},
                "otherwise": "order {number} is not open",
            },
            "move": {
                "description": "Move an order.",
                "sql": "UPDATE orders SET state = :state WHERE number = :number",
                "parameters": {"number": TEXT, "state": TEXT | {"default": "sent"}},
            },
        },
        "scores": {
            "goal": {"after": "gold"},
            "cancelled": {"assert": "SELECT state = 'cancelled' FROM orders WHERE number = :number"},
        },
    }


def test_statements_read_and_change_the_trajectorys_own_copy(played, env):
    turns = [call("look", number="12") + STOP, call("cancel", number="12") + STOP, f"Done.{STOP}"]
    done, idle = played(env, turns, [call("look", number="12") + STOP, f"Done.{STOP}"], task=TASK)[0]
    assert [record.result.text for record in done.calls] == ['[{"state": "open"}]', '{"changed": 1}']
    assert done.world.scores == {"goal": 1.0, "cancelled": 1.0}
    assert idle.world.scores == {"goal": 0.0, "cancelled": 0.0}
    assert done.turns[1].world.changes[0].difference == 'orders[1][1]: "open" -> "cancelled"'


def test_equality_of_the_final_state_sees_what_was_done_beside_the_task(played, env):
    turns = [call("cancel", number="12") + STOP, call("cancel", number="11") + STOP, f"Done.{STOP}"]
    ((trajectory,), _) = played(env, turns, task=TASK)
    assert trajectory.world.scores == {"goal": 0.0, "cancelled": 1.0}


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (call("cancel", number="13"), "order 13 is not open"),
        (call("look", number="99"), "there is no order 99"),
        (call("move", number="12", state="lost"), "CHECK constraint failed"),
    ],
)
def test_what_the_database_refuses_is_read_by_the_model(played, env, turn, words):
    ((trajectory,), _) = played(env, [turn + STOP, f"Done.{STOP}"], task=TASK)
    assert trajectory.calls[0].result.outcome is Outcome.TOOL_ERROR and words in trajectory.calls[0].result.text


def test_an_argument_is_a_value_and_never_sql(played, env):
    ((trajectory,), _) = played(env, [call("look", number="12'; DROP TABLE orders; --") + STOP, f"!{STOP}"], task=TASK)
    assert "there is no order" in trajectory.calls[0].result.text and not trajectory.turns[0].world.changes


def test_a_statement_that_does_not_end_makes_the_trajectory_unscorable(played, env):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    hung = env | {"statements": {"count": {"description": "Count.", "sql": endless}}, "limits": {"step_s": 0.1}}
    ((trajectory,), _) = played(hung, [call("count") + STOP, f"Done.{STOP}"], task=TASK)
    assert not trajectory.scorable and trajectory.world.failed == "step"


def test_a_snapshot_goes_on_as_the_world_that_it_was_taken_from(env):
    spec = EnvSpec.model_validate(env)

    async def go():
        async with spec.open() as make:
            world, fork = await make(), await make()
            await world.reset(TASK, 0)
            await world.call(ToolCall("cancel", {"number": "12"}))
            await fork.restore(pickle.loads(pickle.dumps(await world.snapshot())))
            assert await fork.state() == await world.state()
            await fork.call(ToolCall("cancel", {"number": "11"}))
            assert (await world.score())["goal"] == 1.0 > (await fork.score())["goal"]
            await world.close()
            await fork.close()

    asyncio.run(go())


def test_statements_that_sqlite_cannot_read_are_faults_before_the_run(env):
    wrong = env | {"statements": {"look": {"description": "Look.", "sql": "SELECT state FROM order_s"}}}
    assert EnvSpec.model_validate(wrong).static_complaints() == ["statements.look: no such table: order_s"]
    unbound = env | {"statements": {"look": {"description": "Look.", "sql": "SELECT :number"}}}
    assert "statements.look: You did not supply a value" in EnvSpec.model_validate(unbound).static_complaints()[0]
    assert EnvSpec.model_validate(env).static_complaints() == []


def test_a_column_that_holds_what_leads_to_the_goal_is_needed_in_every_row(env):
    assert EnvSpec.model_validate(env).missing_columns(["number"]) == ["gold"]
    assert EnvSpec.model_validate(env).missing_columns(["gold"]) == []


def test_a_value_in_a_servers_arguments_is_data_and_not_filled_in_again():
    values = {"name": "{secret}", "secret": "7", "number": 3}
    assert fill({"a": "I am {name}.", "b": ["{number}", "no {other}"]}, values) == {
        "a": "I am {secret}.",
        "b": [3, "no {other}"],
    }


def test_a_seed_may_be_a_script(env, tmp_path):
    (tmp_path / "seed.sql").write_text("CREATE TABLE orders (number TEXT, state TEXT);")
    assert EnvSpec.model_validate(env | {"database": str(tmp_path / "seed.sql")}).static_complaints() == []


@pytest.fixture(scope="module")
def on_postgres(env, tmp_path_factory):
    """The same world in schemas of a PostgreSQL server."""
    script = tmp_path_factory.mktemp("postgres") / "orders.sql"
    script.write_text(
        "CREATE TABLE orders (number text PRIMARY KEY, state text CHECK (state <> 'lost'), paid numeric, made date);"
        "INSERT INTO orders VALUES ('11', 'open', 1.5, '2026-01-02'), ('12', 'open', 2, NULL), ('13', 'sent', 3, NULL)"
    )
    asserted = {"assert": "SELECT (state = 'cancelled')::int FROM orders WHERE number = :number"}
    with postgres_server() as server:
        keys = {"database": str(script), "server": server, "limits": {"max_concurrency": 8}}
        yield env | keys | {"scores": env["scores"] | {"cancelled": asserted}}


def test_a_schema_of_postgres_is_a_world_as_a_copy_of_sqlite_is(played, on_postgres):
    assert EnvSpec.model_validate(on_postgres).complaints() == []
    done = [call("look", number="12") + STOP, call("cancel", number="12") + STOP, f"Done.{STOP}"]
    wrong = [call("cancel", number="13") + STOP, call("move", number="12", state="lost") + STOP, f"Done.{STOP}"]
    right, refused = played(on_postgres, done, wrong, task=TASK)[0]
    assert [record.result.text for record in right.calls] == ['[{"state": "open"}]', '{"changed": 1}']
    assert right.world.scores == {"goal": 1.0, "cancelled": 1.0} and refused.world.scores["goal"] == 0.0
    assert right.turns[1].world.changes[0].difference == 'orders[1][1]: "open" -> "cancelled"'
    assert "order 13 is not open" in refused.calls[0].result.text
    assert "violates check constraint" in refused.calls[1].result.text
    assert left_over(on_postgres["server"]) == []


def test_what_a_killed_run_left_on_the_server_is_dropped_by_the_next_one_and_what_lives_is_not(on_postgres):
    spec = EnvSpec.model_validate(on_postgres)
    killed, living = spec._open_seed(), spec._open_seed()
    killed.make()._connection.close()
    kept = living.make()
    killed._admin.close()
    assert len(left_over(on_postgres["server"])) == 2
    spec._open_seed().close()
    assert len(left_over(on_postgres["server"])) == 1 and kept.tables() == ["orders"]
    kept.close()
    living.close()


def test_what_postgres_cannot_run_is_a_fault_before_the_run(on_postgres):
    def complaints(**keys):
        return EnvSpec.model_validate(on_postgres | keys).complaints()

    missing = {"statements": {"look": {"description": "Look.", "sql": "SELECT state FROM order_s"}}}
    assert complaints(**missing) == ['statements.look: relation "order_s" does not exist']
    (crowd,) = complaints(limits={})
    assert crowd.startswith("limits.max_concurrency is 256: the server has") and "write at most" in crowd
    (absent,) = complaints(database=None, template="nowhere")
    assert 'template database "nowhere" does not exist' in absent
    with pytest.raises(
        RlfError, match=r"env\.server: postgresql\+psycopg://u:\*\*\*@127\.0\.0\.1:1/x cannot be reached"
    ):
        complaints(server="postgresql://u:secret@127.0.0.1:1/x")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"template": "shop"}, "a `database` or a `template`"),
        ({"database": None, "template": "shop"}, "write `server` too"),
        ({"server": "postgresql://h/x"}, "made by a script"),
    ],
)
def test_a_world_has_one_seed(env, changed, words):
    with pytest.raises(ValueError, match=words):
        EnvSpec.model_validate(env | changed)
