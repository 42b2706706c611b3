"""Template results with the types of ansible-core 2.18."""
