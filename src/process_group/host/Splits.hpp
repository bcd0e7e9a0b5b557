#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace bluefog {

// A Splits remembers the parts into which a group was split. Torch splits a group once for each of
// its devices, with one store, and keeps the part that it gets first. It keeps the last store, but
// no part.
// Thread safety: any thread may call any method.
class Splits {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  // Returns the last part if it was made with this store, and nothing otherwise. The part is null
  // on a rank that it left out, and when it has ended.
  std::optional<BackendPtr> madeWith(const StorePtr& store);
  // Returns a name for the next part of these ranks, which is the same on all its members and which
  // no other part has. The prefix of the store that torch gives would not do. It is the part's
  // name, which is used again when the part is gone, and which differs on ranks that were left out
  // of an earlier part.
  std::string nameOfNext(const std::vector<int>& ranks);
  // Remembers a part that was made with this store.
  void note(const StorePtr& store, const BackendPtr& part);

 private:
  struct Split {
    StorePtr store;
    c10::weak_intrusive_ptr<c10d::Backend> part;
  };

  std::mutex mutex_;
  std::optional<Split> last_;
  std::map<std::vector<int>, int> parts_of_;  // number of parts so far, by their ranks
};

}  // namespace bluefog
