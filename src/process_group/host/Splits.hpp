#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace bluefog {

// The parts into which a group was split. torch splits a group once for each of its devices, with
// one store, and keeps the part that it gets first.
//
// Thread safety: any thread may call any method.
class Splits {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  // Returns the part that was last made with this store (null on a rank that it left out), or
  // nothing where the last part was made with another store.
  std::optional<BackendPtr> madeWith(const StorePtr& store);
  // Returns a name for the next part of these ranks: alike on its members, and no other part's.
  // The prefix of the store that torch gives would not do: it is the part's name, which comes again
  // when a part of that name is gone, and it differs on ranks that were left out of a part before.
  std::string nameOfNext(const std::vector<int>& ranks);
  void note(const StorePtr& store, const BackendPtr& part);

 private:
  struct Split {
    StorePtr store;
    c10::weak_intrusive_ptr<c10d::Backend> part;
  };

  std::mutex mutex_;
  std::optional<Split> last_;
  std::map<std::vector<int>, int> parts_of_;
};

}  // namespace bluefog
