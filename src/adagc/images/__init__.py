"""Images by row number, from files, arrays, a cache or a generator; labels are in adagc.labels."""
