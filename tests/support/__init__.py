"""What tests against real parts use: kubectl, an operator process, and patience."""
