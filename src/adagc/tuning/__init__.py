"""Options chosen by noisy validation labels."""
