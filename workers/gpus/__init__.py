"""What the GPUs of an instance do now, read through NVML in a child process that may hang or die without harm to the worker."""
