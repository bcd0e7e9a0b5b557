#include "bootstrap/Roster.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include "core/Error.hpp"

namespace bluefog {
namespace {

std::string keyOf(int rank) {
  return "rank/" + std::to_string(rank);
}

std::string listOf(const std::string& leader) {
  return leader + "/roster";
}

using List = std::vector<std::optional<RankRecord>>;

// The members are written once, not by each of them: the store keeps it all.
std::string encode(const List& list) {
  std::string text;
  for (std::optional<RankRecord> record : list) {
    if (record && !text.empty() && record->members == list.front()->members) {
      record->members.clear();
    }
    const std::string one = record ? record->encode() : "";
    text += std::to_string(one.size()) + '\n' + one;
  }
  return text;
}

List decode(const std::string& encoded, size_t size) {
  std::istringstream text(encoded);
  List list(size);
  for (std::optional<RankRecord>& record : list) {
    std::string line;
    std::getline(text, line);
    std::string one(std::stoul(line), '\0');
    text.read(one.data(), static_cast<std::streamsize>(one.size()));
    if (!one.empty()) {
      record = RankRecord::decode(one);
      if (record->members.empty()) {
        record->members = list.front()->members;
      }
    }
  }
  return list;
}

}  // namespace

Roster::Roster(KeyValueStore& store, RankRecord me, int rank)
    : store_(store), me_(std::move(me)), rank_(rank), list_(me_.members.size()) {
  if (rank_ == 0) {
    list_.front() = me_;
  }
}

bool Roster::isComplete() const {
  return isListed() && std::all_of(list_.begin(), list_.end(),
                                   [](const auto& record) { return record.has_value(); });
}

bool Roster::advance() {
  if (!std::exchange(is_written_, true)) {
    write();
  }
  return rank_ == 0 ? lead() : follow();
}

void Roster::write() {
  store_.set(keyOf(rank_), me_.encode());
}

bool Roster::lead() {
  bool has_changed = false;
  for (int rank = 1; rank < size(); ++rank) {
    std::optional<RankRecord>& listed = list_[static_cast<size_t>(rank)];
    if (listed && !is_in_doubt_) {
      continue;
    }
    std::optional<RankRecord> found = read(rank);
    if (found && found->answers == me_.id && (!listed || found->id != listed->id)) {
      listed = std::move(found);
      has_changed = true;
    }
  }
  is_in_doubt_ = false;
  if (has_changed) {
    store_.set(listOf(me_.id), encode(list_));
  }
  return has_changed;
}

bool Roster::follow() {
  const bool has_answered = answer();
  return readList() || has_answered;
}

bool Roster::answer() {
  const std::optional<RankRecord> first = read(0);
  // A process that was replaced must not write over the one that replaced it.
  if (!first || first->id == me_.answers || replacement()) {
    return false;
  }
  me_.answers = first->id;
  list_.assign(list_.size(), std::nullopt);
  write();
  return true;
}

bool Roster::readList() {
  const std::optional<std::string> text =
      me_.answers.empty() ? std::nullopt : store_.look(listOf(me_.answers));
  if (!text || *text == list_text_) {
    return false;
  }
  list_text_ = *text;
  List list = decode(*text, list_.size());
  const std::optional<RankRecord>& own = list[static_cast<size_t>(rank_)];
  if (!own || own->id != me_.id) {
    return false;
  }
  list_ = std::move(list);
  return true;
}

std::vector<int> Roster::missing() {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const bool is_here = isListed() ? record(rank).has_value()
                                    : rank == rank_ || (rank != 0 && read(rank).has_value());
    if (!is_here) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::optional<RankRecord> Roster::replacement() {
  std::optional<RankRecord> found = read(rank_);
  return found && found->id != me_.id ? found : std::nullopt;
}

std::optional<RankRecord> Roster::read(int rank) {
  const std::optional<std::string> text = store_.look(keyOf(rank));
  if (!text) {
    return std::nullopt;
  }
  try {
    return RankRecord::decode(*text);
  } catch (const std::exception&) {
    const int who = me_.members[static_cast<size_t>(rank)];
    throw Error(Cause::kMismatch, {who},
                "the store holds something else than a record of rank " + std::to_string(who) +
                    "; does another program use its keys?");
  }
}

}  // namespace bluefog
