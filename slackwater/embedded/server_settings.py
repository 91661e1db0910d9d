"""The settings of every embedded PostgreSQL: on the command line, where no ALTER SYSTEM outranks them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def cluster_name(data: Path) -> str:
    """A short name of this data directory, the beginning of its processes' titles."""
    return "slackwater-" + hashlib.sha256(str(data).encode()).hexdigest()[:12]


def server_settings(data: Path, log: Path, port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """A small server on the loopback that loses no commit and logs no client's text; `extra` comes last."""
    return {
        "cluster_name": cluster_name(data),
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "password_encryption": "scram-sha-256",
        "max_connections": "100",
        "superuser_reserved_connections": "3",
        **_MEMORY,
        **_DURABILITY,
        **_LOG,
        "log_directory": str(log),
        **extra,
    }


_MEMORY = {
    "shared_buffers": "128MB",
    "work_mem": "4MB",
    "maintenance_work_mem": "64MB",
    "effective_cache_size": "512MB",
    "max_worker_processes": "4",
    "max_parallel_workers_per_gather": "0",
    "autovacuum_max_workers": "2",
    "io_workers": "1",
    "jit": "off",
}

_DURABILITY = {
    "fsync": "on",
    "full_page_writes": "on",
    # The wheel is built without lz4 and zstd.
    "wal_compression": "pglz",
    "max_wal_size": "1GB",
    "max_wal_senders": "2",
}

# An ERROR is told to the client that caused it. In the log it could quote a prompt ("invalid input syntax for
# type json"), hence only what the server says of itself: LOG, FATAL and PANIC.
_LOG = {
    "logging_collector": "on",
    "log_destination": "stderr",
    "log_filename": "postgres-%a.log",
    "log_file_mode": "0600",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
    "log_startup_progress_interval": "2s",
    "lc_messages": "C",
    "timezone": "UTC",
}
