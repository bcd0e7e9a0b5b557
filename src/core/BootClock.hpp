#pragma once

#include <cstdint>

// This clock counts nanoseconds since the kernel was booted. All processes of a host read the same
// clock.
namespace bluefog::boot_clock {

int64_t now();
// Returns when this process was started or forked, up to ten milliseconds early. Without /proc it
// returns the current time.
int64_t startOfThisProcess();

}  // namespace bluefog::boot_clock
