#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>

#include "bootstrap/Endpoint.hpp"
#include "bootstrap/Epoch.hpp"

namespace bluefog {

// A Meeting is what the members of an epoch need to make its group.
// Thread safety: a plain value.
struct Meeting {
  std::shared_ptr<Endpoint> endpoint;  // this process's
  Epoch epoch;
  c10::intrusive_ptr<c10d::Store> store;  // no other epoch has its keys
  std::chrono::milliseconds timeout{0};   // for meeting; the group's operations have their own
  std::function<bool()> is_aborted;       // asked now and then, by the thread that meets
};

}  // namespace bluefog
