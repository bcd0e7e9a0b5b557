#include "bootstrap/pmix/Job.hpp"

#include <numeric>
#include <sstream>
#include <stdexcept>

namespace bluefog::pmix {
namespace {

template <typename Number>
void write(std::ostream& out, const std::vector<Number>& numbers) {
  out << numbers.size();
  for (const Number number : numbers) {
    out << ' ' << number;
  }
  out << '\n';
}

template <typename Number>
std::vector<Number> read(std::istream& in) {
  size_t count = 0;
  in >> count;
  std::vector<Number> numbers;
  for (Number number; numbers.size() < count && in >> number;) {
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

size_t Job::size() const {
  return std::accumulate(hosts.begin(), hosts.end(), size_t{0},
                         [](size_t sum, const Host& each) { return sum + each.ranks.size(); });
}

std::string Job::encode() const {
  std::ostringstream out;
  out << library << '\n' << nspace << '\n' << hosts.size() << ' ' << here << '\n';
  for (const Host& each : hosts) {
    out << each.name << ' ';
    write(out, each.ranks);
  }
  write(out, pids);
  return out.str();
}

Job Job::decode(const std::string& text) {
  std::istringstream in(text);
  Job job;
  size_t count = 0;
  std::getline(in, job.library);
  in >> job.nspace >> count >> job.here;
  for (std::string name; job.hosts.size() < count && in >> name;) {
    job.hosts.push_back({name, read<int>(in)});
  }
  job.pids = read<pid_t>(in);
  if (!in || job.here >= job.hosts.size() || job.pids.size() != job.host().ranks.size()) {
    throw std::runtime_error("not a job's description");
  }
  return job;
}

}  // namespace bluefog::pmix
