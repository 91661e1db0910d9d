"""A driver that exists only in a script: built from C by the test run, read by the real binding."""
