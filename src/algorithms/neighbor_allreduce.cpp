#include <algorithm>

#include "algorithms/Algorithms.hpp"
#include "core/Reduce.hpp"

namespace bluefog {
Script neighborSum(Mailbox& mailbox, const Op& op, const std::byte* input, double self_weight,
                   std::vector<WeightedRank> sources, double divisor, std::byte* output) {
  const Dtype dtype = op.signature.dtype;
  const size_t bytes = op.signature.bytes();
  std::vector<Mailbox::Expected> messages;
  messages.reserve(sources.size());
  for (const WeightedRank& source : sources) {
    messages.push_back(mailbox.expect(op, source.rank, 0));
  }
  co_await mailbox.arrived(messages);
  for (const Mailbox::Expected& message : messages) {
    mailbox.requireSame(*message, op);
  }

  std::vector<const void*> inputs;
  std::vector<double> weights;
  const auto sum = [&](size_t at, size_t length, const auto& bytesOf) {
    inputs.assign(1, input + at);
    weights.assign(1, self_weight);
    for (size_t i = 0; i < messages.size(); ++i) {
      const double weight = sources[i].weight * messages[i]->weight;
      // What a rank is not to hear of must not reach it as 0 * infinity either.
      if (weight != 0) {
        inputs.push_back(bytesOf(*messages[i]));
        weights.push_back(weight);
      }
    }
    weightedSum(dtype, output + at, inputs, weights, divisor, length / width(dtype),
                storesFor(bytes));
  };

  if (messages.empty() || bytes <= Mailbox::payload()) {
    for (const Mailbox::Expected& message : messages) {
      if (message->state == Inbound::State::kAnnounced) {  // its sender is far ahead
        message->payload.resize(bytes);
        mailbox.accept(message, message->payload.data());
        co_await mailbox.completed(*message);
      }
    }
    sum(0, bytes, [](const Inbound& message) { return message.payload.data(); });
    co_return;
  }
  const auto floor = co_await mailbox.floor();
  for (const Mailbox::Expected& message : messages) {
    mailbox.accept(message, nullptr);
  }
  for (size_t at = 0; at < bytes; at += Mailbox::payload()) {
    co_await mailbox.heads(messages);
    sum(at, std::min(Mailbox::payload(), bytes - at),
        [&](const Inbound& message) { return mailbox.head(message); });
    for (const Mailbox::Expected& message : messages) {
      mailbox.pop(*message);
    }
    co_await Pause();
  }
}

}  // namespace bluefog
