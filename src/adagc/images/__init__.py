"""Images by index: files, arrays, stores, made-up scenes. Labels live apart."""
