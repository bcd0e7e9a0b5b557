#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/RankRecord.hpp"

namespace bluefog {

// A Roster is one process's view of which processes make up a group. Rank 0 decides, so that all
// agree.
//
// Each process writes a record with an id of its own under its rank; the newest record of a rank
// counts. Each process answers rank 0: it writes the id from rank 0's record into its own record.
// Rank 0 publishes a list of the processes that have answered it. A process belongs to the group
// once the list has its id, and the group is complete once the list has all ranks.
//
// Earlier processes have left records, answers and lists in the store, and some may still be
// writing. They do not count, because none of them can have answered a new id.
//
// The store must outlive the object.
// Thread safety: one thread at a time.
class Roster {
 public:
  Roster(KeyValueStore& store, RankRecord me, int rank);
  // Makes a roster that is complete.
  Roster(KeyValueStore& store, const std::vector<RankRecord>& list, int rank);

  // Writes and reads what can be written and read now, without waiting. Returns true if that has
  // changed the list or this process's answer.
  bool advance();
  bool isComplete() const;
  // Returns whether this process is on the list.
  bool isListed() const { return record(rank_).has_value(); }
  // Returns the record of a rank, or nothing where the rank is not on the list.
  const std::optional<RankRecord>& record(int rank) const {
    return list_[static_cast<size_t>(rank)];
  }
  const RankRecord& me() const { return me_; }
  // Replaces the record of a rank on the list by a newer one of the same process.
  void renew(int rank, RankRecord record);
  // Returns the id of the process of rank 0 that this process has answered. It is empty where no
  // such process has been seen.
  const std::string& rankZero() const { return rank_ == 0 ? me_.id : me_.answers; }
  // Returns whether this process has tried to make a group under these keys before.
  bool isAgain() const { return is_again_; }
  // Returns the ranks that are missing as far as this process can tell.
  std::vector<int> missing();
  // Returns the record that another process has written over this one's, if one has.
  std::optional<RankRecord> replacement();
  // Returns the record of another process with which the group was made under this process's rank,
  // if there is one. That may have happened in an earlier life of the job.
  const std::optional<RankRecord>& rival() const { return rival_; }
  // Returns the record that was written last under that rank, by whatever process.
  std::optional<RankRecord> read(int rank);
  // Returns whether the process of `record` is on the list of the process of rank 0 that the record
  // answers.
  bool lists(const RankRecord& record, int rank);
  // Makes the next advance() of rank 0 look for processes on the list that have been replaced, and
  // take them off.
  void doubt() { is_in_doubt_ = true; }

 private:
  int size() const { return static_cast<int>(list_.size()); }
  void write();
  bool lead();
  // Reads the records of the ranks that are not on the list, or of all ranks. Returns true if the
  // list has changed.
  bool reread(bool all);
  bool follow();
  bool answer();
  bool readList();

  KeyValueStore& store_;
  RankRecord me_;
  int rank_;
  bool is_written_ = false;
  bool is_again_ = false;
  bool is_in_doubt_ = false;
  std::vector<std::optional<RankRecord>> list_;
  std::string list_text_;  // the list as it was read last
  std::optional<RankRecord> rival_;
};

}  // namespace bluefog
