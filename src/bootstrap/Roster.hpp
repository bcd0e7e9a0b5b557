#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/RankRecord.hpp"

namespace bluefog {

// Which processes make a group. Rank 0 decides, so that all agree.
//
// Each process writes its record, with an id of its own, under its rank. The newest one counts.
// Each answers rank 0: it writes the id that it has read in the record of rank 0 into its own.
// Rank 0 lists those who have answered it. A process belongs to the group once the list has its id,
// and the group is complete once the list has all ranks.
//
// Earlier processes left records, answers and lists in the store, or still write some. They count
// for nothing: none of them has answered an id that is new.
class Roster {
 public:
  Roster(KeyValueStore& store, RankRecord me, int rank);

  // Writes and reads what there is to write and read now. True where that has changed something.
  bool advance();
  bool isComplete() const;
  // This process is on the list.
  bool isListed() const { return record(rank_).has_value(); }
  // Nothing where the rank is not on the list.
  const std::optional<RankRecord>& record(int rank) const {
    return list_[static_cast<size_t>(rank)];
  }
  const RankRecord& me() const { return me_; }
  // The id of the process of rank 0 that this one has answered; empty where none has been seen.
  const std::string& rankZero() const { return rank_ == 0 ? me_.id : me_.answers; }
  // This process has tried to make a group under these keys before.
  bool isAgain() const { return is_again_; }
  // The ranks that are not here as far as this process can tell.
  std::vector<int> missing();
  // Returns the record that another process has written over this one's, if one has.
  std::optional<RankRecord> replacement();
  // Another process, with which the group was made under this one's rank. It may have been so in
  // an earlier life of the job.
  const std::optional<RankRecord>& rival() const { return rival_; }
  // The record that was written last under that rank, be it of whatever process.
  std::optional<RankRecord> read(int rank);
  // The process of rank 0 that such a record answers has that record's process on its list.
  bool lists(const RankRecord& record, int rank);
  // Takes processes off the list that have been replaced.
  void doubt() { is_in_doubt_ = true; }

 private:
  int size() const { return static_cast<int>(list_.size()); }
  void write();
  bool lead();
  // Reads the records of those who are not on the list, or of all.
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
  std::string list_text_;  // as it was read last
  std::optional<RankRecord> rival_;
};

}  // namespace bluefog
