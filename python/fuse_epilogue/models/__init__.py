"""Whole models: imported, compiled, run, saved."""
