"""Efficient Gaussian process classification using Pólya-Gamma data augmentation (Wenzel et al., 2019)."""
