"""When work may run and whose turn it is (pure), the statements that race, and the duties."""
