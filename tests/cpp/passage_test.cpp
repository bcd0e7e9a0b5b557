#include "transport/Passage.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace bluefog {
namespace {

constexpr size_t kSlot = 128 * 1024;

// Whether looking has written to it.
bool isTouched(std::vector<std::byte>& slot) {
  for (std::byte byte : slot) {
    if (byte != std::byte{1}) {
      return true;
    }
  }
  return false;
}

TEST(PassageTest, SmallFramesAreNotLookedAt) {
  Passage passage;
  std::vector<std::byte> slot(kSlot, std::byte{1});
  EXPECT_EQ(passage.stores(slot.data(), 100), Stores::kCached);
  EXPECT_FALSE(isTouched(slot));
}

TEST(PassageTest, LooksAgainAfterAWhile) {
  Passage passage;
  std::vector<std::byte> slot(kSlot, std::byte{1});
  for (int look = 0; look < 3; ++look) {
    EXPECT_EQ(passage.stores(slot.data(), slot.size()), Stores::kCached) << "a look needs them";
  }
  EXPECT_TRUE(isTouched(slot));
  slot.assign(kSlot, std::byte{1});
  const Stores found = passage.stores(slot.data(), slot.size());
  EXPECT_FALSE(isTouched(slot));
  EXPECT_EQ(passage.stores(slot.data(), slot.size()), found);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  passage.stores(slot.data(), slot.size());
  EXPECT_TRUE(isTouched(slot));
}

}  // namespace
}  // namespace bluefog
