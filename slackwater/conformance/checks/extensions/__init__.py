"""What this project adds and old clients ignore; a server that has none of it is told so, and fails nothing."""

from slackwater.conformance.checks.extensions import changing, creating, files, finding, lines, resending

__all__ = ["changing", "creating", "files", "finding", "lines", "resending"]
