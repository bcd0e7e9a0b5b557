#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

#include "core/Error.hpp"
#include "transport/operations/Failure.hpp"

namespace bluefog {

// A WindowLabel says whose window it is. The text of each error that a call throws begins with
// who().
struct WindowLabel {
  Membership members;
  std::string name;

  std::string who(const char* op) const { return members.who() + " " + op + " '" + name + "': "; }
};

// Makes the call, and has the text of its errors say whose call it was. The library of a device
// that has failed, and torch, name neither the rank nor the call.
template <class Call>
auto sayingWhoseCall(const WindowLabel& label, const char* op, const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (c10::AcceleratorError& error) {
    error.add_context(label.who(op) + "the device has failed");
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(label.who(op) + error.what());
  }
}

}  // namespace bluefog
