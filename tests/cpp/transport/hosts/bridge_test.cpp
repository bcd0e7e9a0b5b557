#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// The host of one rank was cut off for so long that the others have given it up.
TEST(BridgeTest, WhoIsSaidToHaveDiedBlamesWhoSaysSo) {
  constexpr int kCutOff = 1;
  const Hosts hosts(3, 3);
  Errors errors(3);
  std::atomic<int> failed{0};
  runRanksOn(hosts, 3, [&](Rank& me) {
    me.limit = 5s;
    me.synchronize();
    if (me.self == kCutOff) {
      hosts.die(kCutOff);
      ASSERT_TRUE(eventually([&] { return failed == 2; }));
    }
    errors.set(me.self, failureOf([&] {
                 while (true) {
                   me.synchronize();
                 }
               }));
    ++failed;
  });
  ASSERT_TRUE(errors.all());
  for (const int rank : {0, 2}) {
    EXPECT_EQ(errors[rank].cause(), Cause::kPeerFailed);
    EXPECT_EQ(errors[rank].ranks(), Ranks{kCutOff}) << errors[rank].what();
  }
  const Error& told = errors[kCutOff];
  EXPECT_EQ(told.cause(), Cause::kPeerFailed);
  ASSERT_EQ(told.ranks().size(), 1u);
  EXPECT_NE(told.ranks().front(), kCutOff);
  EXPECT_NE(std::string(told.what())
                .find(rankList(told.ranks()) + " could not reach this rank's host for a while"),
            std::string::npos)
      << told.what();
}

}  // namespace
}  // namespace bluefog::testing
