"""The API proxy of runs: forwarding, ownership, grants, and the log of needed permissions."""
