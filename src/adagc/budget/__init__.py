"""One label on many images, or all labels of fewer: which is better for the same money."""
