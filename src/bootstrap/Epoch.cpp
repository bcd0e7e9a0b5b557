#include "bootstrap/Epoch.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace bluefog {
namespace {

constexpr uint64_t kFnvOffset = 14695981039346656037U;
constexpr uint64_t kFnvPrime = 1099511628211U;

// Returns the 64-bit FNV-1a hash of the text, continued from `hash`.
uint64_t hashed(uint64_t hash, const std::string& text) {
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * kFnvPrime;
  }
  return hash;
}

RankRecord decoded(const std::string& handle, size_t place) {
  try {
    return RankRecord::decode(handle);
  } catch (const std::exception&) {
    throw std::invalid_argument("handle " + std::to_string(place) +
                                " is no reconfigure handle of this version of bluefog_pg");
  }
}

}  // namespace

Epoch Epoch::of(int64_t uuid, const std::vector<std::string>& handles, const RankRecord& self) {
  Epoch epoch;
  epoch.uuid = uuid;
  std::vector<int> ranks(handles.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::set<std::string> ids;
  std::optional<int> own;
  for (size_t place = 0; place < handles.size(); ++place) {
    RankRecord record = decoded(handles[place], place);
    if (!ids.insert(record.id).second) {
      throw std::invalid_argument("handle " + std::to_string(place) + " is there twice");
    }
    if (record.id == self.id) {
      own = static_cast<int>(place);
    }
    record.members = ranks;
    epoch.members.push_back(std::move(record));
  }
  if (!own) {
    throw std::invalid_argument("this process's own handle is not among the " +
                                std::to_string(handles.size()) + " handles");
  }
  epoch.rank = *own;
  return epoch;
}

std::string Epoch::name() const {
  uint64_t hash = kFnvOffset;
  for (const RankRecord& member : members) {
    hash = hashed(hash, member.id);
  }
  return std::to_string(uuid) + ":" + std::to_string(hash);
}

bool Epoch::isOnOneHost() const {
  return std::all_of(members.begin(), members.end(), [this](const RankRecord& member) {
    return member.place == members.front().place;
  });
}

}  // namespace bluefog
