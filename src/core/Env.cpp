#include "core/Env.hpp"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace bluefog::env {
namespace {

std::optional<std::string> read(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Returns whether the variable has the value `only`. Throws std::invalid_argument where it has
// another value. The error text uses `otherwise` to say what holds where the variable is not set.
bool isSetTo(const std::string& name, const std::string& only, const std::string& otherwise) {
  const std::string value = read(name.c_str()).value_or("");
  if (!value.empty() && value != only) {
    throw std::invalid_argument(name + "=" + value + ": it may be " + only + ", or not be set (" +
                                otherwise + ")");
  }
  return value == only;
}

}  // namespace

bool isMpiForced() {
  return isSetTo("BLUEFOG_TRANSPORT", "mpi", "shared memory, and MPI to other hosts");
}

bool checksBefore() {
  return isSetTo("BLUEFOG_CHECK", "before",
                 "calls with tensors on an accelerator do not wait for other ranks");
}

bool isTuningOff() {
  return isSetTo("BLUEFOG_TUNING", "off", "the transport adapts to the machine");
}

std::optional<std::string> mpiInterfaces() {
  const auto list = read("OMPI_MCA_btl_tcp_if_include");
  return list && !list->empty() ? list : std::nullopt;
}

bool excludesMpiInterfaces() {
  return !read("OMPI_MCA_btl_tcp_if_exclude").value_or("").empty();
}

bool lacksTemporaryFolder() {
  const auto folder = read("TMPDIR");
  std::error_code unknown;
  return folder && !std::filesystem::is_directory(*folder, unknown);
}

bool choosesUcx() {
  const std::string pml = read("OMPI_MCA_pml").value_or("");
  return pml.find("ucx") != std::string::npos && pml.front() != '^';
}

MpiPlace mpiPlace() {
  const auto world = read("PMIX_NAMESPACE");
  const auto rank = read("PMIX_RANK");
  return world && rank ? MpiPlace{*world, std::atoi(rank->c_str())} : MpiPlace{};
}

Variables::~Variables() {
  for (auto each = before_.rbegin(); each != before_.rend(); ++each) {
    if (each->second) {
      ::setenv(each->first.c_str(), each->second->c_str(), 1);
    } else {
      ::unsetenv(each->first.c_str());
    }
  }
}

void Variables::set(const std::string& name, const std::string& value) {
  before_.emplace_back(name, read(name.c_str()));
  ::setenv(name.c_str(), value.c_str(), 1);
}

void Variables::setDefault(const std::string& name, const std::string& value) {
  if (!read(name.c_str())) {
    set(name, value);
  }
}

}  // namespace bluefog::env
