"""OpenRLHF's base class of agents."""


class AgentExecutorBase:
    pass
