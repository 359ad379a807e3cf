"""Short runs of a spec under faults of its machine, each looked at afterwards for what was lost."""
