"""The shapes clients see: pure functions from rows to JSON values, field by field as OpenAI answers."""
