#pragma once

#include <string>

namespace bluefog {

// A shared library, loaded as long as the process lives: such as start threads cannot be unloaded.
class SharedLibrary {
 public:
  enum class Symbols {
    kForAll,  // the library's own plug-ins look for them
    kForUs    // libraries that are loaded later do not see them
  };
  // Throws std::runtime_error that says what is missing.
  SharedLibrary(const std::string& path, Symbols symbols);

  // Throws where the library has no such function or variable.
  template <typename Pointer>
  void find(const char* name, Pointer& pointer) const {
    pointer = reinterpret_cast<Pointer>(lookup(name));
  }
  // Null where there is none.
  template <typename Pointer>
  void findIfAny(const char* name, Pointer& pointer) const {
    pointer = reinterpret_cast<Pointer>(lookupIfAny(name));
  }

 private:
  void* lookup(const char* name) const;
  void* lookupIfAny(const char* name) const;

  std::string path_;
  void* handle_;
};

}  // namespace bluefog
