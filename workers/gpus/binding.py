"""The NVML binding, and the refusal of the one that shadows it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import PathFinder

from slackwater.errors import Misconfigured


def check_binding(path: Sequence[str] | None = None) -> None:
    """See that `import pynvml` brings the module of the distribution `nvidia-ml-py`, without importing it.

    The old distribution `pynvml` installs a package of the same name, which wins over the module whatever was installed last.

    Raises:
        Misconfigured: it is not installed, or the old distribution shadows it.
    """
    spec = PathFinder.find_spec("pynvml", path)
    if spec is None:
        raise Misconfigured(
            "the instance declares GPUs, but `nvidia-ml-py` is not installed (pip install nvidia-ml-py)"
        )
    if spec.submodule_search_locations is not None:
        raise Misconfigured(
            "the old distribution `pynvml` shadows `nvidia-ml-py`: both import as pynvml "
            "(pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py)"
        )
