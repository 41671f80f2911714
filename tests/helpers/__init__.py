"""What several test folders share: tiny random models, a tiny countdown run. No downloads."""
