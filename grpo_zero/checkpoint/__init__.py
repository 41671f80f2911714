"""Models on disk: open a folder, a GGUF file or a hub id, load a decoder, save a folder."""
