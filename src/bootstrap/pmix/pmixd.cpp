// `bluefog-pmixd FD` is the PMIx server of one host's ranks, and runs as long as one of them lives.
// FD is a socket to the rank that has started it. That rank says what to serve, and passes fences
// on to the other hosts' ranks.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/pmix/Job.hpp"
#include "bootstrap/pmix/Library.hpp"
#include "bootstrap/pmix/MessageSocket.hpp"
#include "bootstrap/pmix/Server.hpp"
#include "core/Error.hpp"
#include "core/Process.hpp"

namespace bluefog::pmix {
namespace {

// A Folder is a private folder that is removed when the object is destroyed.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "bluefog-pmix-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throwErrno("making a folder in " + path_);
    }
  }
  ~Folder() { remove(); }
  void remove() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Fences holds the fences whose answers have not come, and answers them in the order in which they
// were asked. A fence of MPI_Init never fails, because MPI_Init would then end its process; the
// rank in that process gives up by itself.
// Thread safety: any thread. PMIx asks in a thread of its own.
class Fences {
 public:
  explicit Fences(MessageSocket& starter) : starter_(starter) {}

  void ask(const std::string& blob, Server::Answer answer) {
    const std::lock_guard lock(mutex_);
    if (!mpi_is_up_) {
      starter_.send(MessageSocket::SocketKind::kFence, blob);
      pending_.push_back(std::move(answer));
    } else {
      answer(nullptr);
    }
  }
  void answer(const std::string& all) {
    Server::Answer first;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) {
        return;
      }
      first = std::move(pending_.front());
      pending_.pop_front();
    }
    first(&all);
  }
  // Makes all later fences fail, because nobody swaps blobs once MPI has started.
  void noteMpiIsUp() {
    const std::lock_guard lock(mutex_);
    mpi_is_up_ = true;
  }

 private:
  MessageSocket& starter_;
  std::mutex mutex_;
  std::deque<Server::Answer> pending_;
  bool mpi_is_up_ = false;
};

// A Watch follows the rank processes of this host, and tells the other ranks of each one that ends.
class Watch {
 public:
  Watch(const Job& job, const Server& server) : ranks_(job.host().ranks), server_(server) {
    for (const pid_t pid : job.pids) {
      processes_.emplace_back(pid);
      has_ended_.push_back(processes_.back().hasEnded());
    }
  }
  bool isOver() const {
    return std::all_of(has_ended_.begin(), has_ended_.end(), [](bool ended) { return ended; });
  }
  // Waits for the end of a rank or for a message on the descriptor. Returns true where the
  // descriptor has a message.
  bool awaitMessage(int fd) {
    std::vector<pollfd> polled{{fd, POLLIN, 0}};
    bool all_have_descriptors = true;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!has_ended_[i]) {
        polled.push_back({processes_[i].fd(), POLLIN, 0});
        all_have_descriptors = all_have_descriptors && processes_[i].fd() >= 0;
      }
    }
    ::poll(polled.data(), polled.size(), all_have_descriptors ? -1 : kBetweenLooks);
    look();
    return polled.front().revents != 0;
  }

 private:
  static constexpr int kBetweenLooks = 100;  // milliseconds

  void look() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!has_ended_[i] && processes_[i].hasEnded()) {
        has_ended_[i] = true;
        server_.notifyDeath(ranks_[i]);
      }
    }
  }

  const std::vector<int>& ranks_;
  const Server& server_;
  std::vector<Process> processes_;
  std::vector<bool> has_ended_;
};

void serve(const Job& job, const Server& server, MessageSocket& starter, Fences& fences,
           Folder& folder) {
  Watch watch(job, server);
  int fd = starter.fd();
  while (!watch.isOver()) {
    if (!watch.awaitMessage(fd)) {
      continue;
    }
    const auto message = starter.receive();
    if (!message) {
      fd = -1;
      folder.remove();  // No rank needs it any more, and it would stay if this process were killed.
    } else if (message->kind == MessageSocket::SocketKind::kFence) {
      fences.answer(message->text);
    } else {
      fences.noteMpiIsUp();
    }
  }
}

void run(MessageSocket& starter) {
  const auto first = starter.receive();
  if (!first) {
    return;
  }
  const Job job = Job::decode(first->text);
  const PmixLibrary library(job.library);
  Folder folder;
  Fences fences(starter);
  const Server server(library, job, folder.path(),
                      [&fences](const std::string& blob, Server::Answer answer) {
                        fences.ask(blob, std::move(answer));
                      });
  for (const int rank : job.host().ranks) {
    std::string lines;
    for (const std::string& variable : server.environment(rank)) {
      lines += variable + '\n';
    }
    starter.send(MessageSocket::SocketKind::kEnvironment, lines);
  }
  serve(job, server, starter, fences, folder);
}

// Moves this program out of sight of the starter's terminal and of its wait(): the first process
// ends, and its child goes on.
void detach(int starters_end) {
  if (::fork() != 0) {
    ::_exit(0);
  }
  ::setsid();
  const Fd null(::open("/dev/null", O_RDWR));
  for (const int standard : {0, 1, 2}) {
    ::dup2(null.get(), standard);
  }
  // Files that the starter did not mark close-on-exec would stay open as long as this program
  // lives.
  ::syscall(SYS_close_range, starters_end + 1, ~0U, 0);
}

}  // namespace
}  // namespace bluefog::pmix

int main(int argc, char** argv) {
  using namespace bluefog::pmix;
  if (argc != 2) {
    return 2;
  }
  const int starters_end = std::atoi(argv[1]);
  detach(starters_end);
  ::umask(077);
  MessageSocket starter{bluefog::Fd(starters_end)};
  try {
    run(starter);
  } catch (const std::exception& error) {
    starter.send(MessageSocket::SocketKind::kFailed, error.what());
    return 1;
  }
  return 0;
}
