"""The lines of `rlf --help` about each command, which loads none of them."""

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "init": "Make a project folder: spec, tools, rewards, data and a README.",
        "doctor": "Check Python, packages, machine, lineage and sandbox.",
    },
    "Check": {
        "check": "Report every fault of a spec and of its files. Trains nothing.",
        "plan": "Show the compiled plan: values with their origin, files, work and memory.",
        "rehearse": "Run an OpenRLHF job on this CPU with your tools, your rewards and a tiny model.",
        "schema": "Print the JSON Schema of specs, tools, rewards and outputs.",
    },
    "Train": {
        "run": "Train a model as a spec says.",
        "resume": "Continue a run or a sweep from its last checkpoint.",
    },
    "Look": {
        "runs": "List, show, compare, export, import and remove runs.",
        "trace": "Show a trajectory turn by turn, or find trajectories.",
        "web": "Open a page in the browser: runs, trajectories, specs, tools.",
    },
    "Use": {
        "eval": "Evaluate runs, checkpoints, models and endpoints with a spec's tools and rewards.",
        "chat": "Chat with a model; its tools run.",
        "serve": "Serve a model to OpenAI-compatible clients.",
        "export": "Write a run's model as a Hugging Face folder.",
    },
    "Parts": {
        "tools": "List, test, benchmark, import and serve tools.",
        "rewards": "List, test, score and attack rewards.",
        "judge": "Serve the models that judge.",
        "env": "Build, test and play environments.",
        "format": "Show prompts and how turns are parsed.",
    },
}
"""Commands by what they are for, each with one line."""
