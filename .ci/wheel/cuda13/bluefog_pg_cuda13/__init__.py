"""This package brings libbluefog_cuda.so, the kernels for CUDA 13 that bluefog_pg loads."""
