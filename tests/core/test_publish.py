"""What is written beside its target and renamed."""

from rlf.core.publish import published


def test_what_a_killed_write_left_is_named_and_left_alone(tmp_path, caplog):
    left, foreign = tmp_path / f".out.{'ab' * 6}.tmp", tmp_path / ".out.tmp"
    left.mkdir()
    foreign.touch()
    with published(tmp_path / "out") as temporary:
        temporary.touch()
    assert [record.message.partition(":")[0] for record in caplog.records] == [str(left)]
    assert left.is_dir() and foreign.is_file()
