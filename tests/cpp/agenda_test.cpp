#include "transport/Agenda.hpp"

#include <gtest/gtest.h>

#include "ranks.hpp"

namespace bluefog::testing {
namespace {

// Two ranks whose agendas the test drives itself, step by step.
class AgendaTest : public ::testing::Test {
 protected:
  struct Side {
    Side(const Fd& memory, int rank)
        : members(membership(rank, 2)),
          segment(memory, 2),
          agenda(segment, members, Links(2)),
          peer(1 - rank) {}

    // As long as it runs, its data is `memory`.
    OpPtr add(size_t count, const std::function<Script(const Op&, std::byte*)>& script,
              size_t sends) {
      Signature signature;
      signature.kind = OpKind::kPointToPoint;
      signature.dtype = kDtype<float>;
      signature.count = count;
      const auto op = std::make_shared<Op>(Op::Kind::kMessage, signature,
                                           Deadline::in(std::chrono::minutes(1)));
      const auto data = std::make_shared<std::vector<float>>(count);
      op->memory = data;
      op->sequence = ++issued;
      op->sends = sends;
      op->scripts.push_back(script(*op, bytesOf(*data)));
      agenda.add(op);
      return op;
    }
    OpPtr send(size_t count) {
      return add(
          count,
          [&](const Op& op, std::byte* data) {
            return bluefog::send(agenda.mailbox(), op, peer, 0, data, 1.0);
          },
          1);
    }
    OpPtr receive(size_t count) {
      return add(
          count,
          [&](const Op& op, std::byte* data) {
            return bluefog::receive(agenda.mailbox(), op, peer, 0, data, std::make_shared<int>());
          },
          0);
    }

    Membership members;
    Segment segment;
    Agenda agenda;
    int peer;
    uint64_t issued = 0;
  };

  Fd memory_ = Segment::create(2);
  Side zero_{memory_, 0};
  Side one_{memory_, 1};
};

std::string told(const OpPtr& op) {
  const std::optional<Error> error = errorOf(*op);
  return error ? story(*error) : "";
}

// The call that tells of the first refusal sends a message that is itself refused later.
TEST_F(AgendaTest, EachOfTwoLateRefusalsIsTold) {
  EXPECT_EQ(told(zero_.send(2)), "");
  const OpPtr first = one_.receive(1);
  one_.agenda.pass();
  EXPECT_NE(told(first), "");

  zero_.receive(1);
  zero_.agenda.pass();  // takes in the refusal
  const std::string of_first = told(zero_.send(3));
  EXPECT_NE(of_first.find("this rank's message #1"), std::string::npos) << of_first;
  const OpPtr second = one_.receive(1);
  one_.agenda.pass();
  EXPECT_NE(told(second), "");

  zero_.agenda.pass();
  const std::string of_second = told(zero_.receive(1));
  EXPECT_NE(of_second.find("this rank's message #3"), std::string::npos) << of_second;
  EXPECT_EQ(told(zero_.receive(1)), "");
}

}  // namespace
}  // namespace bluefog::testing
