#pragma once

#include <cstdint>

// Nanoseconds since the kernel was booted: one clock for all processes of a host.
namespace bluefog::boot_clock {

int64_t now();
// When this process was started or forked, up to ten milliseconds early. Now, without /proc.
int64_t startOfThisProcess();

}  // namespace bluefog::boot_clock
