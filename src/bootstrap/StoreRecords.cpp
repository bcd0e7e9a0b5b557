#include "bootstrap/StoreRecords.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <utility>
#include <vector>

#include "core/Env.hpp"

namespace bluefog {

StoreRecords::StoreRecords(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank) {
  // Each life of the group counts `size` arrivals; survivors that meet again are fewer, and must
  // not count on from the arrivals of those that were more.
  const std::string attempt = "bluefog/" + env::restartCount() + "/" + std::to_string(size) + "/";
  const int64_t incarnation = (store_->add(attempt + "arrivals", 1) - 1) / size;
  prefix_ = attempt + std::to_string(incarnation) + "/";
}

std::string StoreRecords::key(const std::string& topic, int rank) const {
  return prefix_ + topic + "/" + std::to_string(rank);
}

std::string StoreRecords::keeper() const {
  c10::intrusive_ptr<c10d::Store> store = store_;
  while (const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store)) {
    store = prefixed->getUnderlyingStore();
  }
  const auto tcp = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(store);
  return tcp ? tcp->getHost() : "";
}

void StoreRecords::publish(const std::string& topic, const std::string& record) {
  store_->set(key(topic, rank_), std::vector<uint8_t>(record.begin(), record.end()));
}

std::optional<std::string> StoreRecords::look(const std::string& topic, int rank) {
  const std::string name = key(topic, rank);
  if (!store_->check({name})) {
    return std::nullopt;
  }
  const std::vector<uint8_t> record = store_->get(name);
  return std::string(record.begin(), record.end());
}

}  // namespace bluefog
