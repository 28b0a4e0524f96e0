"""Triton kernels for NVIDIA GPUs: emitters per region, and their ahead-of-time compilation."""
