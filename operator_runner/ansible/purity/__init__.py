"""Find out whether a role depends on anything but its variables and the objects that it reads."""
