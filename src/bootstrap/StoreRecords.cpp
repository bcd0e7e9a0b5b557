#include "bootstrap/StoreRecords.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <memory>
#include <utility>
#include <vector>

#include "core/Env.hpp"

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

}  // namespace

StoreRecords::StoreRecords(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           Deadline deadline, std::function<void()> interrupt)
    : keeper_(hostOf(store)),
      store_(store, nameOf(store), deadline, std::move(interrupt)),
      rank_(rank) {
  // Each life of the group counts `size` arrivals; survivors that meet again are fewer, and must
  // not count on from the arrivals of those that were more.
  const std::string attempt = "bluefog/" + env::restartCount() + "/" + std::to_string(size) + "/";
  const auto arrivals = std::make_shared<int64_t>();
  store_.run([=](c10d::Store& asked) { *arrivals = asked.add(attempt + "arrivals", 1); });
  prefix_ = attempt + std::to_string((*arrivals - 1) / size) + "/";
}

std::string StoreRecords::key(const std::string& topic, int rank) const {
  return prefix_ + topic + "/" + std::to_string(rank);
}

void StoreRecords::publish(const std::string& topic, const std::string& record) {
  store_.run([name = key(topic, rank_), record](c10d::Store& asked) {
    asked.set(name, std::vector<uint8_t>(record.begin(), record.end()));
  });
}

std::optional<std::string> StoreRecords::look(const std::string& topic, int rank) {
  const auto found = std::make_shared<std::optional<std::string>>();
  store_.run([name = key(topic, rank), found](c10d::Store& asked) {
    if (asked.check({name})) {
      const std::vector<uint8_t> record = asked.get(name);
      found->emplace(record.begin(), record.end());
    }
  });
  return *found;
}

}  // namespace bluefog
