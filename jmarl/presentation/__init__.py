"""Styles and templates of figures and pages."""
