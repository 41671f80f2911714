"""Text to token ids and back: the tokenizer and the chat template. No torch here."""
