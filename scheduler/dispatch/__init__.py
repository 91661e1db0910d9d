"""The sender's process: it claims due deliveries, sends them, and records what became of each attempt."""
