// All of it, as one file: torch's headers, which two of these include, take longer than they do.
#include "backend.cpp"
#include "device.cpp"
#include "kernels.cpp"
#include "memory.cpp"
#include "messages.cpp"
