#include "bootstrap/TorchStore.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace bluefog {
namespace {

c10::intrusive_ptr<c10d::TCPStore> tcpStore(c10::intrusive_ptr<c10d::Store> store) {
  while (const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    store = prefixed->getUnderlyingStore();
  }
  return c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(store);
}

std::string hostOf(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto tcp = tcpStore(store);
  return tcp ? tcp->getHost() : "";
}

std::string nameOf(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto tcp = tcpStore(store);
  return "the store" + (tcp ? " at " + tcp->getHost() + ":" + std::to_string(tcp->getPort()) : "");
}

// Returns whether the error says that a Store written in Python lacks the method.
bool isNotImplemented(const std::exception& error) {
  return std::strstr(error.what(), "pure virtual") != nullptr ||
         std::strstr(error.what(), "NotImplemented") != nullptr;
}

bool waitBriefly(c10d::Store& store, const std::string& key) {
  try {
    store.wait({key}, std::chrono::milliseconds(1));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool has(c10d::Store& store, const std::string& key) {
  try {
    return store.check({key});
  } catch (const std::exception& error) {
    if (!isNotImplemented(error)) {
      throw;
    }
    return waitBriefly(store, key);
  }
}

}  // namespace

TorchStore::TorchStore(const c10::intrusive_ptr<c10d::Store>& store, std::string prefix,
                       Deadline deadline, std::function<void()> interrupt)
    : host_(hostOf(store)),
      prefix_(std::move(prefix)),
      store_(store, nameOf(store), deadline, std::move(interrupt)) {}

void TorchStore::set(const std::string& key, const std::string& text) {
  store_.run([name = prefix_ + key, text](c10d::Store& asked) {
    asked.set(name, std::vector<uint8_t>(text.begin(), text.end()));
  });
}

std::optional<std::string> TorchStore::look(const std::string& key) {
  const auto found = std::make_shared<std::optional<std::string>>();
  store_.run([name = prefix_ + key, found](c10d::Store& asked) {
    if (has(asked, name)) {
      const std::vector<uint8_t> text = asked.get(name);
      found->emplace(text.begin(), text.end());
    }
  });
  return *found;
}

}  // namespace bluefog
