"""Activity of the parts of a GPU (Hopper and newer): the difference of two samples the driver takes at least 100 ms apart."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pynvml

from workers.gpus.sample import ratio

GRAPHICS: Final = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
SM: Final = pynvml.NVML_GPM_METRIC_SM_UTIL
TENSOR: Final = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
DRAM: Final = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
METRICS: Final = (GRAPHICS, SM, TENSOR, DRAM)
APART_SECONDS: Final = 0.1


class ActivityMeter:
    """Reads `METRICS` of a card, or of its GPU instance `part`, between one call and the next."""

    def __init__(self, card: Any, part: int | None) -> None:
        self.card, self.part = card, part
        self._samples: list[Any] = []
        self._sampled_at = float("-inf")
        self._has_earlier = False
        self._last: dict[int, float | None] = {}
        self._request: Any = None

    def read(self, at: float) -> dict[int, float | None]:
        """Ratios by metric since the call before, whose result stands until the samples are far enough apart.

        Raises:
            NVMLError: NOT_SUPPORTED where the GPU has no such counters, NO_DATA at the first call.
        """
        if at - self._sampled_at < APART_SECONDS + 0.005:
            return self._last
        self._open()
        earlier, later = self._samples
        self._take(later)
        self._samples.reverse()
        self._sampled_at, had_earlier, self._has_earlier = at, self._has_earlier, True
        if not had_earlier:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
        self._last = self._compare(earlier, later)
        return self._last

    def close(self) -> None:
        """Free the driver's samples."""
        for sample in self._samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _open(self) -> None:
        if self._samples:
            return
        if not pynvml.nvmlGpmQueryDeviceSupport(self.card).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION

    def _take(self, sample: Any) -> None:
        if self.part is None:
            pynvml.nvmlGpmSampleGet(self.card, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(self.card, self.part, sample)

    def _compare(self, earlier: Any, later: Any) -> dict[int, float | None]:
        asked = self._request
        asked.sample1, asked.sample2, asked.numMetrics = earlier, later, len(METRICS)
        for place, metric in enumerate(METRICS):
            asked.metrics[place].metricId = metric
        pynvml.nvmlGpmMetricsGet(asked)
        given = asked.metrics[: len(METRICS)]
        return {m.metricId: ratio(m.value) if m.nvmlReturn == pynvml.NVML_SUCCESS else None for m in given}
