"""The ways to run a request: an upstream with an OpenAI-compatible URL, our own engine in process, or a scripted echo."""
