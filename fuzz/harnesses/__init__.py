"""One harness a file: `READS`, `seeds()`, `run(data)`."""
