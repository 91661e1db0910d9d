"""Chat beside batch work on this machine: a real vLLM (its CPU build), the real product, replayed bursts and idle stretches."""
