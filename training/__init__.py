"""The workbench: raw text to a small encoder in Hub format. Run from a clone: `python -m training VERB`."""
