"""Make tables and a recommendation from finished runs."""
