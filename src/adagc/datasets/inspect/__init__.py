"""A look at data before work begins."""
