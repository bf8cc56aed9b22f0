"""What pages in the browser have in common: who may ask, pictures, records of what people did."""
