"""The batch as it lies in memory: records in, cells and lines out."""
