"""Figures: paper and pen, matrices and curves, overlays on images, the lectures' figures, and the single-file page."""
