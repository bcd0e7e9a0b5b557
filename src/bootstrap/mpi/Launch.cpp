#include "bootstrap/mpi/Launch.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace bluefog::mpi {
namespace {

const std::string kEnvironments = "mpi environments";
const std::string kFence = "mpi fence ";
constexpr char kBetweenRanks = '\f';
constexpr int kMostFences = 8;  // upper bound of the fences in MPI_Init

pmix::Job describeJob(const Rendezvous& rendezvous, const Home& home, const std::string& world) {
  pmix::Job job;
  job.library = home.pmix_library;
  job.nspace = world;
  std::vector<std::string> places;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    const std::string& place = rendezvous.record(rank).place;
    const auto found = std::find(places.begin(), places.end(), place);
    const auto index = static_cast<size_t>(found - places.begin());
    if (found == places.end()) {
      places.push_back(place);
      // The hosts' own names are not used, because two network namespaces may have the same one.
      job.hosts.push_back({"host" + std::to_string(index), {}});
    }
    job.hosts[index].ranks.push_back(rank);
    if (rendezvous.isHere(rank)) {
      job.here = index;
      job.pids.push_back(rendezvous.record(rank).pid);
    }
  }
  return job;
}

// Returns all hosts' blobs of one fence, one after the other. The first rank of each host publishes
// its host's blob. Throws std::runtime_error once `ends` is set.
std::string swapOverStore(Records& records, const pmix::Job& job, const std::string& topic,
                          const std::string& blob, const std::atomic<bool>& ends) {
  records.publish(topic, blob);
  std::string all;
  for (const pmix::Job::Host& host : job.hosts) {
    std::optional<std::string> theirs;
    while (!(theirs = records.look(topic, host.ranks.front()))) {
      if (ends) {
        throw std::runtime_error("the group was given up");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    all += *theirs;
  }
  return all;
}

}  // namespace

Launch::Launch(Rendezvous& rendezvous, const Home& home, const std::string& world,
               env::Variables& variables)
    : records_(rendezvous.records()), job_(describeJob(rendezvous, home, world)) {
  if (rendezvous.rank() == rendezvous.leader()) {
    startServer(rendezvous, home);
  }
  enter(rendezvous.await(kEnvironments, rendezvous.leader()), rendezvous.rank(), variables);
  // Open MPI 4.1 believes that it was started alone unless this variable is set. It never connects
  // to the address.
  variables.set("OMPI_MCA_orte_local_daemon_uri", "1.0;tcp://127.0.0.1:9");
}

std::vector<int> Launch::late() const {
  std::vector<int> ranks;
  for (int number = 0; number < kMostFences; ++number) {
    std::vector<int> lacking;
    size_t came = 0;
    for (const pmix::Job::Host& host : job_.hosts) {
      if (records_.look(kFence + std::to_string(number), host.ranks.front())) {
        ++came;
      } else {
        lacking.insert(lacking.end(), host.ranks.begin(), host.ranks.end());
      }
    }
    if (came == 0) {
      break;
    }
    ranks = std::move(lacking);
  }
  return ranks;
}

void Launch::startServer(const Rendezvous& rendezvous, const Home& home) {
  server_ = std::make_unique<pmix::ServerProcess>(home.server_program, job_, rendezvous.deadline());
  server_->serveFences([this, number = 0](const std::string& blob) mutable {
    return swapOverStore(records_, job_, kFence + std::to_string(number++), blob, ends_);
  });
  std::string all;
  for (const std::string& environment : server_->environments()) {
    all += environment + kBetweenRanks;
  }
  records_.publish(kEnvironments, all);
}

void Launch::enter(const std::string& environments, int rank, env::Variables& variables) const {
  std::istringstream all(environments);
  std::string own;
  for (const int each : job_.host().ranks) {
    std::getline(all, own, kBetweenRanks);
    if (each == rank) {
      break;
    }
  }
  std::istringstream lines(own);
  for (std::string line; std::getline(lines, line);) {
    const size_t equal = line.find('=');
    variables.set(line.substr(0, equal), line.substr(equal + 1));
  }
}

}  // namespace bluefog::mpi
