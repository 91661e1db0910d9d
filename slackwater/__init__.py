"""Slackwater: a durable queue for model inference that runs in the time live traffic leaves."""
