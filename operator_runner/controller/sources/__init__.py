"""Event sources: primary resources, their dependents, references, and project files."""
