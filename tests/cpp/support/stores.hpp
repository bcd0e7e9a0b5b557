#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "bootstrap/KeyValueStore.hpp"

namespace bluefog::testing {

// A MemoryStore is a KeyValueStore for the threads of one process.
// Thread safety: any thread.
class MemoryStore : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    texts_[key] = text;
  }
  std::optional<std::string> look(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(key);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

// A FolderStore is a KeyValueStore that several processes may use, which may be killed at any
// moment. It has a file for each key.
// Thread safety: any thread of any process.
class FolderStore : public KeyValueStore {
 public:
  FolderStore() {
    std::string name = std::filesystem::temp_directory_path() / "bluefog-store-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  FolderStore(const FolderStore&) = delete;
  FolderStore& operator=(const FolderStore&) = delete;
  ~FolderStore() override {
    if (owner_ == ::getpid()) {
      std::filesystem::remove_all(folder_);
    }
  }
  void set(const std::string& key, const std::string& text) override {
    static std::atomic<int> number{0};
    const std::filesystem::path whole =
        folder_ / ("new-" + std::to_string(::getpid()) + "-" + std::to_string(++number));
    std::ofstream(whole) << text;
    std::filesystem::rename(whole, file(key));
  }
  std::optional<std::string> look(const std::string& key) override {
    std::ifstream text(file(key));
    return text ? std::optional(std::string(std::istreambuf_iterator<char>(text), {}))
                : std::nullopt;
  }

 private:
  std::filesystem::path file(std::string key) const {
    for (char& each : key) {
      each = each == '/' ? '_' : each;
    }
    return folder_ / key;
  }

  std::filesystem::path folder_;
  pid_t owner_ = ::getpid();
};

}  // namespace bluefog::testing
