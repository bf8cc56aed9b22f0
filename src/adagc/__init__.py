"""adagc."""
