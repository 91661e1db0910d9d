"""An upstream: any server with an OpenAI-compatible URL (vLLM, SGLang, llama.cpp, a hosted one). Bodies go out as they are."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite, nan
from typing import Final, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from scheduler.retry import Answered, Ending, Unanswered, Why
from slackwater.errors import Unavailable
from workers.engines.base import Call, EngineLoad

# Of vLLM only: from their pace follow the time of an iteration and the prompt tokens in it.
ITERATIONS: Final = ("vllm:iteration_tokens_total_count",)
ITERATION_TOKENS: Final = ("vllm:iteration_tokens_total_sum",)
CACHE: Final = "vllm:cache_config_info"
CONNECT_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 2.0
MOST_BODY_BYTES: Final = 64 << 20
MOST_PAGE_BYTES: Final = 4 << 20
PLAIN: Final = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
# The same figure under the names of vLLM (both generations), SGLang and llama.cpp.
RUNNING: Final = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
WAITING: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
KV_USED: Final = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)


@dataclass
class UpstreamEngine:
    """Keeps its connections and bounds what is in flight on them. `url` is the base, with or without `/v1`."""

    url: str
    session: aiohttp.ClientSession
    timeout_seconds: float
    has_metrics: bool = True

    @classmethod
    async def open(cls, url: str, api_key: str | None, *, most: int, timeout_seconds: float) -> Self:
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        connector = aiohttp.TCPConnector(limit=most + 2, keepalive_timeout=60)
        session = aiohttp.ClientSession(connector=connector, headers=headers, trust_env=False, auto_decompress=False)
        return cls(url.rstrip("/").removesuffix("/v1"), session, timeout_seconds)

    async def run(self, call: Call) -> Ending:
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds, sock_connect=CONNECT_SECONDS)
        headers = {"Content-Type": "application/json", "X-Request-Id": call.id}
        try:
            async with self.session.post(
                self.url + call.endpoint, data=call.body, headers=headers, timeout=timeout, allow_redirects=False
            ) as reply:
                return await _ending(reply)
        except (aiohttp.ServerTimeoutError, TimeoutError) as error:
            return Unanswered(Why.UNREACHABLE if isinstance(error, aiohttp.ConnectionTimeoutError) else Why.TIMED_OUT)
        except aiohttp.ClientConnectorError:
            return Unanswered(Why.UNREACHABLE)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return Unanswered(Why.DROPPED)
        except aiohttp.ClientError:
            return Unanswered(Why.BAD_UPSTREAM)

    async def load(self) -> EngineLoad:
        """From `/metrics`; a server without it is only known to answer."""
        try:
            if self.has_metrics:
                status, text = await self._get("/metrics")
                if status == 200:
                    return load_of(text)
                self.has_metrics = status not in (404, 405)
            status, _ = await self._get("/v1/models")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable("the upstream does not answer") from error
        if status >= 500:
            raise Unavailable(f"the upstream answers {status}")
        return EngineLoad()

    async def serves(self, model: str) -> bool:
        try:
            status, text = await self._get("/v1/models")
            listed = json.loads(text) if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
            return False
        data = listed.get("data") if isinstance(listed, dict) else None
        return isinstance(data, list) and any(isinstance(m, dict) and m.get("id") == model for m in data)

    async def _get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path, timeout=_probe(), allow_redirects=False) as reply:
            return reply.status, (await _bounded(reply, MOST_PAGE_BYTES)).decode(errors="replace")

    async def close(self) -> None:
        await self.session.close()
        await asyncio.sleep(0)


def _probe() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=PROBE_SECONDS)


async def _ending(reply: aiohttp.ClientResponse) -> Ending:
    body = await _bounded(reply, MOST_BODY_BYTES)
    if len(body) > MOST_BODY_BYTES:
        return Unanswered(Why.BAD_UPSTREAM)
    retry_after = seconds_of(reply.headers.get("Retry-After"), time.time())
    return Answered(reply.status, body, retry_after, _request_id(reply.headers.get("X-Request-Id")))


async def _bounded(reply: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, whatever it claims to measure; one byte over `most` tells that it is longer."""
    body = bytearray()
    async for piece in reply.content.iter_chunked(1 << 16):
        body += piece
        if len(body) > most:
            break
    return bytes(body)


def _request_id(header: str | None) -> str | None:
    """The upstream's id of a run, where it may stand in an output line as it is."""
    return header if header is not None and PLAIN.fullmatch(header) else None


def seconds_of(retry_after: str | None, now: float) -> float | None:
    """A `Retry-After` header in seconds from `now` (unix seconds): a number or an HTTP date; None where it is neither."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except ValueError:
        return None


def load_of(text: str) -> EngineLoad:
    """The load in a Prometheus page; a figure that is not there is None. Sums over the models and ranks of a page."""
    sums: dict[str, float] = {}
    capacity = None
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
                if sample.name == CACHE:
                    capacity = _cache_tokens(sample.labels)
    except ValueError:
        return EngineLoad()
    return EngineLoad(
        _whole(_first(sums, RUNNING)),
        _whole(_first(sums, WAITING)),
        _first(sums, KV_USED),
        _whole(_first(sums, ITERATIONS)),
        _whole(_first(sums, ITERATION_TOKENS)),
        capacity,
    )


def _cache_tokens(labels: Mapping[str, str]) -> int | None:
    """Tokens that the cache holds, from the labels of vLLM's `cache_config_info`."""
    try:
        return int(labels["block_size"]) * int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return None


def _whole(figure: float | None) -> int | None:
    return None if figure is None else int(figure)


def _first(sums: dict[str, float], names: tuple[str, ...]) -> float | None:
    """The first figure that is there and is a number: NaN and Inf tell nothing."""
    return next((sums[name] for name in names if isfinite(sums.get(name, nan))), None)
