#pragma once

#include <string>

namespace bluefog {

// A SharedLibrary is a library that was loaded at run time. It stays loaded as long as the process
// lives, because libraries that start threads cannot be unloaded.
// Thread safety: any thread.
class SharedLibrary {
 public:
  enum class Symbols {
    kForAll,  // the library's own plug-ins can find the symbols
    kForUs    // libraries that are loaded later do not see the symbols
  };
  // Throws std::runtime_error that says what is missing.
  SharedLibrary(const std::string& path, Symbols symbols);

  // Sets `pointer` to the function or variable of that name. Throws std::runtime_error where the
  // library has none.
  template <typename Pointer>
  void find(const char* name, Pointer& pointer) const {
    pointer = reinterpret_cast<Pointer>(lookup(name));
  }
  // Sets `pointer` to the function or variable of that name, or to null where the library has none.
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
