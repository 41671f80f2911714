"""What a model's answers are worth, from the answers alone: success, pass@k, differences. No model and no torch here."""
