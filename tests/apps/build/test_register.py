"""Names of tools over the parts of a build."""

from rlf.apps.build.kind import BuildPart
from rlf.apps.build.pack import Register


def part(name, codes):
    tools = tuple({"name": tool, "target": {"kind": "source"}} for tool in codes)
    return BuildPart(name, (), tools, codes, {})


def test_a_new_name_is_no_other_tools_of_the_same_part():
    register = Register()
    register.add(part("first", {"find": "def find(): return 1\n"}))
    admitted = register.admitted(
        part("second", {"find": "def find(): return 2\n", "find_2": "def find_2(): return 3\n"})
    )
    assert list(admitted.codes) == ["find_3", "find_2"]
    assert [tool["name"] for tool in admitted.tools] == ["find_3", "find_2"]
    assert admitted.codes["find_2"] == "def find_2(): return 3\n"
