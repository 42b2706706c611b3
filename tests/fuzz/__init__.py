"""What comes from outside, made up: a short form for each test run, a long one by `make fuzz`."""
