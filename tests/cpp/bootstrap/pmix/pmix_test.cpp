#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bootstrap/pmix/ServerProcess.hpp"
#include "core/SharedLibrary.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

namespace fs = std::filesystem;
using pmix::Job;
using pmix::ServerProcess;

constexpr int kRanks = 4;

Deadline soon() {
  return Deadline::in(std::chrono::seconds(30));
}

// Returns the prefix of an Open MPI, or nothing.
std::string mpiHome() {
  const char* home = std::getenv("BLUEFOG_MPI_HOME");
  const bool is_there = home != nullptr && fs::exists(std::string(home) + "/lib/libmpi.so.40");
  return is_there ? home : "";
}

// A Swapping exchanges the blobs of all hosts, as a job does over its Store.
class Swapping {
 public:
  explicit Swapping(size_t hosts) : hosts_(hosts) {}
  std::string swap(size_t host, const std::string& blob) {
    std::unique_lock lock(mutex_);
    const size_t fence = fences_[host]++;
    blobs_[fence][host] = blob;
    changed_.notify_all();
    changed_.wait(lock, [&] { return blobs_[fence].size() == hosts_; });
    std::string all;
    for (const auto& [each, text] : blobs_[fence]) {
      all += text;
    }
    return all;
  }

 private:
  const size_t hosts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, size_t> fences_;  // the number of fences of each host so far
  std::map<size_t, std::map<size_t, std::string>> blobs_;  // the blobs of each fence, by host
};

void setEnvironment(const std::string& lines) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const size_t equal = line.find('=');
    ::setenv(line.substr(0, equal).c_str(), line.substr(equal + 1).c_str(), 1);
  }
  ::setenv("OPAL_PREFIX", mpiHome().c_str(), 1);
  ::setenv("OMPI_MCA_pml", "ob1", 1);
  ::setenv("OMPI_MCA_btl", "self,tcp", 1);
  ::setenv("OMPI_MCA_osc", "^ucx", 1);
  ::setenv("OMPI_MCA_mpi_ft_enable", "1", 1);
}

// Does a rank's work: it returns the sum over all ranks of `mine`, in the world that MPI sees.
int sumOverWorld(int mine) {
  const SharedLibrary mpi(mpiHome() + "/lib/libmpi.so.40", SharedLibrary::Symbols::kForAll);
  int (*init)(int*, char***, int, int*);
  int (*allreduce)(const void*, void*, int, void*, void*, void*);
  void* world;
  void* type;
  void* sum;
  mpi.find("MPI_Init_thread", init);
  mpi.find("MPI_Allreduce", allreduce);
  mpi.find("ompi_mpi_comm_world", world);
  mpi.find("ompi_mpi_int", type);
  mpi.find("ompi_mpi_op_sum", sum);
  int level = 0;
  int total = 0;
  init(nullptr, nullptr, 3, &level);
  allreduce(&mine, &total, 1, type, sum, world);
  return level == 3 ? total : -1;
}

// A RankProcess is a rank that receives its environment over a socket, and sends its result back.
class RankProcess {
 public:
  RankProcess(int rank) : ends_(socketPair()), child_([&] { run(rank); }) {}

  pid_t pid() const { return child_.pid(); }
  void begin(const std::string& environment) {
    ::send(ends_.first.get(), environment.data(), environment.size(), 0);
  }
  int result() {
    int total = 0;
    EXPECT_TRUE(eventually(
        [&] { return ::recv(ends_.first.get(), &total, sizeof total, 0) == sizeof total; }));
    return total;
  }

 private:
  void run(int rank) {
    std::string lines(1 << 16, '\0');
    ::fcntl(ends_.second.get(), F_SETFL, 0);
    lines.resize(static_cast<size_t>(::recv(ends_.second.get(), lines.data(), lines.size(), 0)));
    setEnvironment(lines);
    const int total = sumOverWorld(1 << rank);
    ::send(ends_.second.get(), &total, sizeof total, 0);
    ::recv(ends_.second.get(), lines.data(), 1, 0);  // waits for the end of the test
  }

  std::pair<Fd, Fd> ends_;
  Child child_;
};

std::string folders() {
  std::string found;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
    if (entry.path().filename().string().starts_with("bluefog-pmix-")) {
      found += entry.path().string() + " ";
    }
  }
  return found;
}

TEST(Job, IsReadAsItWasWritten) {
  Job job;
  job.library = "/somewhere else/libpmix.so.2";
  job.nspace = "bluefog-12ab";
  job.hosts = {{"a", {0, 2}}, {"b", {1}}};
  job.here = 1;
  job.pids = {77};
  const Job read = Job::decode(job.encode());
  EXPECT_EQ(read.encode(), job.encode());
  EXPECT_EQ(read.size(), 3U);
  EXPECT_EQ(read.host().name, "b");
  EXPECT_THROW(Job::decode("nonsense"), std::runtime_error);
}

TEST(ServerProcess, SaysThatItDoesNotAnswer) {
  const fs::path program = fs::temp_directory_path() / ("mute-" + std::to_string(::getpid()));
  std::ofstream(program) << "#!/bin/sh\nsleep 5 &\n";
  fs::permissions(program, fs::perms::owner_all);
  Job job;
  job.hosts = {{"host0", {0}}};
  const auto start = [&] {
    ServerProcess(program.string(), job, Deadline::in(std::chrono::milliseconds(200)));
  };
  try {
    start();
    ADD_FAILURE() << "it answered";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("does not answer"), std::string::npos);
  }
  fs::remove(program);
}

TEST(ServerProcess, SaysWhatIsWrong) {
  Job job{.library = "/nowhere/libpmix.so", .nspace = "n", .hosts = {{"a", {0}}}, .pids = {1}};
  EXPECT_THROW(ServerProcess("/nowhere/bluefog-pmixd", job, soon()), std::system_error);
  try {
    ServerProcess(BLUEFOG_PMIXD, job, soon());
    FAIL() << "serves";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/libpmix.so"), std::string::npos);
  }
}

TEST(ServerProcess, GivesTwoHostsOneWorld) {
  if (mpiHome().empty()) {
    GTEST_SKIP() << "BLUEFOG_MPI_HOME names no Open MPI";
  }
  const std::string before = folders();
  std::deque<RankProcess> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(rank);
  }
  Swapping swapping(2);
  std::deque<ServerProcess> servers;
  for (size_t here : {0, 1}) {
    Job job;
    job.library = mpiHome() + "/lib/openmpi/libpmix.so.2";
    job.nspace = "bluefog-test-" + std::to_string(::getpid());
    job.hosts = {{"a", {0, 2}}, {"b", {1, 3}}};
    job.here = here;
    for (const int rank : job.host().ranks) {
      job.pids.push_back(ranks[static_cast<size_t>(rank)].pid());
    }
    ServerProcess& server = servers.emplace_back(BLUEFOG_PMIXD, job, soon());
    server.serveFences([&, here](const std::string& blob) { return swapping.swap(here, blob); });
    for (size_t local = 0; local < job.pids.size(); ++local) {
      ranks[static_cast<size_t>(job.host().ranks[local])].begin(server.environments()[local]);
    }
  }
  EXPECT_NE(folders(), before);
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.result(), (1 << kRanks) - 1);
  }
  ranks.clear();
  EXPECT_TRUE(eventually([&] { return folders() == before; })) << "left behind: " << folders();
}

}  // namespace
}  // namespace bluefog::testing
