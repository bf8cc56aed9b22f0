"""Review: what a trained model believes is there and nobody has marked, asked of people."""
