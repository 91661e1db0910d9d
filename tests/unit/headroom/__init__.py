"""The policy and its simulator: pure, so every test passes the clock in."""
