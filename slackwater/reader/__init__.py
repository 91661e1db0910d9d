"""Reads batch files and JSON bodies strictly, and writes the lines of output files. Pure: no I/O."""
