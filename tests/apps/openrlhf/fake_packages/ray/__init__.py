"""As much of Ray as an errand to the nodes of a cluster calls: one node, on which tasks are called as they are."""

from types import SimpleNamespace


def init():
    pass


def shutdown():
    pass


def nodes():
    return [{"Alive": True, "NodeID": "here"}, {"Alive": False, "NodeID": "gone"}]


def remote(function):
    task = SimpleNamespace(remote=function)
    return SimpleNamespace(options=lambda **options: task)


def get(result):
    return result
