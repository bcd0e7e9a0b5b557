#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bluefog::mpi::interfaces {

// The network interface by which this host reaches that one, which may be given by its address.
// None where that is not known, or is the loopback.
std::optional<std::string> toward(const std::string& host);

// At which other ranks may reach this host, as numbers: "10.0.0.1".
std::vector<std::string> addresses();

// Of names and networks (10.0.0.0/8) with commas between. Throws std::runtime_error where this host
// has none of them, or none that leads to other hosts: MPI would only warn, and then wait, or reach
// itself.
void requireAny(const std::string& list);

}  // namespace bluefog::mpi::interfaces
