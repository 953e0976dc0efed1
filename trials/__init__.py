"""What tests and benchmarks share: small markets, dishonest servers, kills, and foreign apps."""
