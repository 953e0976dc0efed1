"""What all tests share."""

from hypothesis import settings

# The same examples on every run: a failure can be repeated, and chance cannot turn a run red.
settings.register_profile("fedprice", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("fedprice")
