"""A run as one HTML page to send to someone: curves, findings, answers, settings. No torch."""
