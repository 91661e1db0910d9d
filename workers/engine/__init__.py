"""The local engine: SmolLM2-135M-Instruct in this process, on transformers and torch, fully offline.

Importing this package loads neither torch nor weights; `LocalEngine.load` does.
"""

from workers.engine.answer import Answer
from workers.engine.facade import LocalEngine
from workers.engine.sample import Load

__all__ = ["Answer", "Load", "LocalEngine"]
