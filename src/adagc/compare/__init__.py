"""From finished runs to tables and a recommendation."""
