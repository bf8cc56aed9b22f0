"""Tuning: a method's options are chosen by its scores on noisy (observed) validation labels."""
