#include "transport/hosts/mpi/Requests.hpp"

namespace bluefog::mpi {

using RequestState = RemoteTransport::RequestState;

Requests::TrackedRequest* Requests::add(Request request, bool is_short) {
  TrackedRequest& entry =
      entries_.emplace_back(TrackedRequest{request, RequestState::kUnderWay, nullptr, {}});
  entry.self = std::prev(entries_.end());
  int done = 0;
  if (request == nullptr || (is_short && mpi_.test(&entry.request, &done, nullptr) != 0)) {
    entry.state = RequestState::kFailed;
  } else if (done != 0) {
    entry.state = RequestState::kDone;
  }
  return &entry;
}

RequestState Requests::test(TrackedRequest* entry) {
  const RequestState state = entry->state;
  if (state != RequestState::kUnderWay) {
    entries_.erase(entry->self);
  }
  return state;
}

void Requests::askForAll() {
  asked_.clear();
  requests_.clear();
  for (TrackedRequest& entry : entries_) {
    if (entry.state == RequestState::kUnderWay) {
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
    noteEnded(*asked_[static_cast<size_t>(ended_[at])],
              has_failed ? RequestState::kFailed : RequestState::kDone);
  }
}

void Requests::noteEnded(TrackedRequest& entry, RequestState state) {
  entry.state = state;
  if (entry.held) {
    entries_.erase(entry.self);
  }
}

void Requests::detach(const std::vector<TrackedRequest*>& entries,
                      const std::shared_ptr<void>& memory) {
  for (TrackedRequest* entry : entries) {
    if (entry->state != RequestState::kUnderWay) {
      entries_.erase(entry->self);
    } else {
      entry->held = memory;
    }
  }
}

}  // namespace bluefog::mpi
