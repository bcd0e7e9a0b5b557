#include "transport/hosts/mpi/Requests.hpp"

namespace bluefog::mpi {

using State = RemoteTransport::State;

Requests::Entry* Requests::add(Request request, bool is_short) {
  Entry& entry = entries_.emplace_back(Entry{request, State::kUnderWay, nullptr, {}});
  entry.self = std::prev(entries_.end());
  int done = 0;
  if (request == nullptr || (is_short && mpi_.test(&entry.request, &done, nullptr) != 0)) {
    entry.state = State::kFailed;
  } else if (done != 0) {
    entry.state = State::kDone;
  }
  return &entry;
}

State Requests::test(Entry* entry) {
  const State state = entry->state;
  if (state != State::kUnderWay) {
    entries_.erase(entry->self);
  }
  return state;
}

void Requests::askForAll() {
  asked_.clear();
  requests_.clear();
  for (Entry& entry : entries_) {
    if (entry.state == State::kUnderWay) {
      asked_.push_back(&entry);
      requests_.push_back(entry.request);
    }
  }
  if (asked_.empty()) {
    return;
  }
  ended_.resize(asked_.size());
  statuses_.resize(asked_.size());
  int ended_n = 0;
  const int code = mpi_.testsome(static_cast<int>(asked_.size()), requests_.data(), &ended_n,
                                 ended_.data(), statuses_.data());
  for (int i = 0; i < ended_n; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool has_failed = code != 0 && statuses_[at].error != 0;
    noteEnded(*asked_[static_cast<size_t>(ended_[at])], has_failed ? State::kFailed : State::kDone);
  }
}

void Requests::noteEnded(Entry& entry, State state) {
  entry.state = state;
  if (entry.buried) {
    entries_.erase(entry.self);
  }
}

void Requests::bury(const std::vector<Entry*>& entries, const std::shared_ptr<void>& memory) {
  for (Entry* entry : entries) {
    if (entry->state != State::kUnderWay) {
      entries_.erase(entry->self);
    } else {
      entry->buried = memory;
    }
  }
}

}  // namespace bluefog::mpi
