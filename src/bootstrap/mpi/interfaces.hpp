#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bluefog::mpi::interfaces {

// Returns the network interface by which this host reaches `host`, which may be a name or an
// address. Returns nothing where that is unknown or is the loopback.
std::optional<std::string> toward(const std::string& host);

// Returns the addresses at which other ranks may reach this host, as numbers like "10.0.0.1".
std::vector<std::string> addresses();

// Takes a list of interface names and networks (10.0.0.0/8), separated by commas. Throws
// std::runtime_error where this host has none of them, or none that leads to other hosts. MPI would
// only warn, and then wait or reach itself.
void requireAny(const std::string& list);

}  // namespace bluefog::mpi::interfaces
