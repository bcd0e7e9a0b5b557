#include "bootstrap/Roster.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

namespace bluefog {
namespace {

std::string keyOf(int rank) {
  return "rank/" + std::to_string(rank);
}

std::string listOf(const std::string& leader) {
  return leader + "/roster";
}

using List = std::vector<std::optional<RankRecord>>;

// Returns the list as a text. It has the group's members only once, because the store keeps it all.
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

// Throws std::exception where the text is no list.
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
      if (record->members.empty() && list.front()) {
        record->members = list.front()->members;
      }
    }
  }
  return list;
}

bool isWhole(const List& list) {
  return std::all_of(list.begin(), list.end(),
                     [](const auto& record) { return record.has_value(); });
}

}  // namespace

Roster::Roster(KeyValueStore& store, RankRecord me, int rank)
    : store_(store), me_(std::move(me)), rank_(rank), list_(me_.members.size()) {
  if (rank_ == 0) {
    list_.front() = me_;
  }
}

Roster::Roster(KeyValueStore& store, const std::vector<RankRecord>& list, int rank)
    : store_(store),
      me_(list[static_cast<size_t>(rank)]),
      rank_(rank),
      is_written_(true),
      list_(list.begin(), list.end()) {
  me_.answers = rank_ == 0 ? "" : list.front().id;
}

void Roster::renew(int rank, RankRecord record) {
  list_[static_cast<size_t>(rank)] = std::move(record);
}

bool Roster::isComplete() const {
  return isListed() && isWhole(list_);
}

bool Roster::advance() {
  if (!is_written_) {
    const std::optional<RankRecord> before = read(rank_);
    is_again_ = before && before->isSameProcessAs(me_);
    write();
    is_written_ = true;
  }
  return rank_ == 0 ? lead() : follow();
}

void Roster::write() {
  store_.set(keyOf(rank_), me_.encode());
}

bool Roster::lead() {
  bool has_changed = reread(std::exchange(is_in_doubt_, false));
  // A process that was on the list already may have been replaced meanwhile.
  if (has_changed && isWhole(list_)) {
    has_changed = reread(true) || has_changed;
  }
  if (has_changed) {
    store_.set(listOf(me_.id), encode(list_));
  }
  return has_changed;
}

bool Roster::reread(bool all) {
  bool has_changed = false;
  for (int rank = 1; rank < size(); ++rank) {
    std::optional<RankRecord>& listed = list_[static_cast<size_t>(rank)];
    if (listed && !all) {
      continue;
    }
    std::optional<RankRecord> found = read(rank);
    if (!found || (listed && found->id == listed->id)) {
      continue;
    }
    const bool was_listed = listed.has_value();
    listed = found->answers == me_.id ? std::move(found) : std::nullopt;
    has_changed = has_changed || was_listed || listed;
  }
  return has_changed;
}

bool Roster::follow() {
  const bool has_answered = answer();
  return readList() || has_answered;
}

bool Roster::answer() {
  const std::optional<RankRecord> first = read(0);
  // A process that was replaced must not write over the record of the one that replaced it.
  if (!first || first->id == me_.answers || replacement()) {
    return false;
  }
  me_.answers = first->id;
  list_.assign(list_.size(), std::nullopt);
  rival_.reset();
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
  if (own && own->id == me_.id) {
    list_ = std::move(list);
    return true;
  }
  if (isWhole(list) && !own->isSameProcessAs(me_)) {
    rival_ = own;
  }
  return false;
}

bool Roster::lists(const RankRecord& record, int rank) {
  const std::string& first = rank == 0 ? record.id : record.answers;
  const std::optional<std::string> text = first.empty() ? std::nullopt : store_.look(listOf(first));
  if (!text) {
    return false;
  }
  const List list = decode(*text, list_.size());
  const std::optional<RankRecord>& listed = list[static_cast<size_t>(rank)];
  return listed && listed->id == record.id;
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
  try {
    return text ? std::optional(RankRecord::decode(*text)) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // Another version has left it, or another program.
  }
}

}  // namespace bluefog
