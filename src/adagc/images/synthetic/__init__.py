"""Made-up Sentinel-like scenes."""
