"""The update and the loop: packing, chunked log-probs, optimizer, evaluation, training."""
