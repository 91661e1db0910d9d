"""Live traffic: passed through to an instance as it is, and measured, so that batch work knows what it must leave room for."""
