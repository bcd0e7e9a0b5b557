// All files are compiled as one, because two of them include torch's headers, which take longer
// than the files themselves.
#include "backend.cpp"
#include "device.cpp"
#include "kernels.cpp"
#include "memory.cpp"
#include "messages.cpp"
