"""The annotation tool: one key per image, everything that was offered and chosen kept."""
