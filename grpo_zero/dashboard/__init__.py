"""A local web page on run folders: charts of the metrics, and the answers behind them. It reads, and never writes. No torch."""
