"""Commands beside `run`. The runtime imports none of them."""
