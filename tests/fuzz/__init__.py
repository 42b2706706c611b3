"""Generated external input: a short run with the tests, a long one by `make fuzz`."""
