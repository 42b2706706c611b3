"""What a user configures: watches.yaml and the flags."""
