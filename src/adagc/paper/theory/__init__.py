"""Compares the paper's propositions about noisy mAP with what a run has measured."""
