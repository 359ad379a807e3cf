"""The engine for real models: the same plan as a job of OpenRLHF, on Ray, vLLM and DeepSpeed.

Each folder knows only those above it in this list:

    job/        the job folder and what lies in it: paths, launches, rows, checkpoints
    compile/    a plan becomes options that OpenRLHF's own parser takes, and files; memory is estimated
    spool/      what agents did, line by line, and its way from nodes without a shared disk
    rehearse/   the same job on this CPU: environment, small model, what is changed
    actor/      what runs inside OpenRLHF's rollout actors: the agent, and adapters on their way to vLLM
    follow/     spool and output become the events of a run, while it runs
    launch/     one machine or a cluster: checks before a start, processes, Ray's job server

`engine.py` puts them together.
"""
