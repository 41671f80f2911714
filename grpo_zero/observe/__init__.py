"""What a run shows: the metric catalogue, the records, and where they are written. No torch."""
