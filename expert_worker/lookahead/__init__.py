"""The lookahead process: predicts which experts the next layer will need, and tells the workers of its machine."""
