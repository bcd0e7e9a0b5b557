#pragma once

#include <memory>
#include <mutex>

#include "window/Grounds.hpp"
#include "window/Lives.hpp"
#include "window/NearMutex.hpp"
#include "window/Reach.hpp"
#include "window/Window.hpp"

namespace bluefog {

// Of a rank of this host, whose memory this one writes and reads itself.
class NearReach final : public Reach {
 public:
  NearReach(std::shared_ptr<Window> own, int owner, const WindowPlace& place, Grounds& grounds,
            const Lives& lives);

  bool isThere() const override { return part_.number() == own_->number(); }
  Rest put(const Contribution& what, Into into, const Manner& manner) override;
  Rest get(double weight, bool with_p, Engine::Who who) override;
  SlotMutex& mutex() override { return mutex_; }

 private:
  const std::shared_ptr<Window> own_;
  const int owner_;
  const WindowPart part_;
  const std::byte* const tensor_;
  NearMutex mutex_;
  std::mutex writing_;
};

}  // namespace bluefog
