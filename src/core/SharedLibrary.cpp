#include "core/SharedLibrary.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace bluefog {
namespace {

std::string lastError() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::string& path, Symbols symbols)
    : path_(path),
      handle_(::dlopen(path.c_str(),
                       RTLD_NOW | (symbols == Symbols::kForAll ? RTLD_GLOBAL : RTLD_LOCAL))) {
  if (handle_ == nullptr) {
    throw std::runtime_error(lastError());
  }
}

void* SharedLibrary::lookupIfAny(const char* name) const {
  return ::dlsym(handle_, name);
}

void* SharedLibrary::lookup(const char* name) const {
  void* symbol = lookupIfAny(name);
  if (symbol == nullptr) {
    throw std::runtime_error(path_ + ": " + lastError());
  }
  return symbol;
}

}  // namespace bluefog
