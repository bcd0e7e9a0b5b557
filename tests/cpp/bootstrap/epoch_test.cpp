#include "bootstrap/Epoch.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/Endpoint.hpp"
#include "bootstrap/NoStore.hpp"
#include "bootstrap/Rendezvous.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

using Handles = std::vector<std::string>;

class EpochTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  EpochTest() {
    for (int i = 0; i < kRanks; ++i) {
      endpoints_.push_back(std::make_unique<Endpoint>(""));
      handles_.push_back(endpoints_.back()->handle());
    }
  }
  // Meets the others of an epoch as the process that has that endpoint, and leaves in order.
  // Returns its links.
  Links meet(size_t process, int64_t uuid, const Handles& handles,
             std::chrono::milliseconds limit = 20s) {
    Endpoint& endpoint = *endpoints_[process];
    NoStore store;
    Rendezvous rendezvous(store, endpoint, Epoch::of(uuid, handles, endpoint.record()),
                          Deadline::in(limit), nullptr);
    rendezvous.meet();
    Links links = rendezvous.takeLinks();
    links.sayGoodbye();
    return links;
  }

  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  Handles handles_;
};

TEST_F(EpochTest, MembersMeetAgainAndAgain) {
  const Handles turned(handles_.rbegin(), handles_.rend());
  runThreads(kRanks, [&](int rank) {
    for (int64_t uuid = 0; uuid < 40; ++uuid) {
      const bool is_odd = uuid % 2 == 1;
      const Links links = meet(static_cast<size_t>(rank), uuid, is_odd ? turned : handles_);
      for (int peer = 0; peer < kRanks; ++peer) {
        EXPECT_EQ(links.isMutual(peer), peer != (is_odd ? kRanks - 1 - rank : rank));
      }
    }
  });
}

TEST_F(EpochTest, AFastMemberMayCallForTheNextEpoch) {
  runThreads(kRanks, [&](int rank) {
    meet(static_cast<size_t>(rank), 1, handles_);
    if (rank == 0) {
      std::this_thread::sleep_for(300ms);
    }
    meet(static_cast<size_t>(rank), 2, handles_);
  });
}

TEST_F(EpochTest, MembersThatDisagreeAreTold) {
  const Handles turned(handles_.rbegin(), handles_.rend());
  for (const bool by_uuid : {true, false}) {
    Errors errors(kRanks);
    runThreads(kRanks, [&](int rank) {
      const bool is_odd = rank == kRanks - 1;
      const int64_t uuid = (by_uuid ? 10 : 20) + (by_uuid && is_odd ? 1 : 0);
      errors.set(rank, failureOf([&] {
                   meet(static_cast<size_t>(rank), uuid, !by_uuid && is_odd ? turned : handles_,
                        2s);
                 }));
    });
    // One that calls when the others have given up already waits for its timeout.
    int told = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      told += errors[rank].cause() == Cause::kMismatch ? 1 : 0;
    }
    EXPECT_GE(told, 2);
    runThreads(kRanks, [&](int rank) { meet(static_cast<size_t>(rank), 30 + by_uuid, handles_); });
  }
}

TEST_F(EpochTest, AMemberWithoutAnEndpointHasLeft) {
  endpoints_.back() = std::make_unique<Endpoint>("");  // Its handle is not among handles_.
  Errors errors(2);
  runThreads(2, [&](int rank) {
    errors.set(rank, failureOf([&] { meet(static_cast<size_t>(rank), 1, handles_); }));
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kPeerFailed);
    EXPECT_EQ(errors[rank].ranks(), Ranks{2});
    EXPECT_NE(std::string(errors[rank].what()).find("has left its group"), std::string::npos)
        << errors[rank].what();
  }
}

TEST_F(EpochTest, NamesWhoIsLate) {
  Errors errors(2);
  runThreads(2, [&](int rank) {
    errors.set(rank, failureOf([&] { meet(static_cast<size_t>(rank), 1, handles_, 300ms); }));
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kTimeout);
    EXPECT_EQ(errors[rank].ranks(), Ranks{2}) << errors[rank].what();
  }
}

TEST_F(EpochTest, RefusesHandlesThatAreNone) {
  const RankRecord& self = endpoints_.front()->record();
  for (const Handles& handles :
       {Handles{"rubbish"}, Handles{handles_[0], handles_[0]}, Handles{handles_[1]}}) {
    EXPECT_THROW(Epoch::of(1, handles, self), std::invalid_argument);
  }
  EXPECT_EQ(Epoch::of(1, handles_, self).rank, 0);
}

TEST_F(EpochTest, TheNameSaysWhoIsMeant) {
  const RankRecord& self = endpoints_.front()->record();
  const std::string name = Epoch::of(7, handles_, self).name();
  EXPECT_EQ(Epoch::uuidIn(name), "7");
  EXPECT_EQ(Epoch::of(7, handles_, endpoints_[1]->record()).name(), name);
  EXPECT_NE(Epoch::of(8, handles_, self).name(), name);
  EXPECT_NE(Epoch::of(7, {handles_[1], handles_[0], handles_[2]}, self).name(), name);
}

}  // namespace
}  // namespace bluefog::testing
