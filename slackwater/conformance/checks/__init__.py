"""The checks, by topic. Importing this package registers all of them."""

from slackwater.conformance.checks import (
    batch_object,
    cancelling,
    content,
    creating,
    extensions,
    files,
    headers,
    line_errors,
    models,
    output,
    paging,
    responses,
    strict_json,
    uploads,
)

__all__ = [
    "batch_object",
    "cancelling",
    "content",
    "creating",
    "extensions",
    "files",
    "headers",
    "line_errors",
    "models",
    "output",
    "paging",
    "responses",
    "strict_json",
    "uploads",
]
