"""The process beside a GPU: sample, ask, claim, run, store."""
