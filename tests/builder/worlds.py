"""Small builds for tests."""

from rlf.builder import BuildSettings


def settings(out="unused", *, count=48, **keys):
    build = {"kind": "graph", "count": count, "entities": 12, "worlds": 3, **keys.pop("build", {})}
    gates = {"no_tool": 0.2}  # of twelve things one in twelve is guessed
    return BuildSettings.model_validate({"build": build, "out": str(out), "gates": gates, **keys})


def parts(built):
    with built.build.open(built, None) as maker:
        return [maker.make(name) for name in maker.names]
