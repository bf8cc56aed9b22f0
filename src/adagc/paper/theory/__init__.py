"""The paper's propositions against what was seen."""
