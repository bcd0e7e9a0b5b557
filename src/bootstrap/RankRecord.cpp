#include "bootstrap/RankRecord.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "bootstrap/mpi/World.hpp"
#include "core/BootClock.hpp"
#include "core/Env.hpp"
#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {
namespace {

std::string randomHex() {
  std::array<unsigned char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throwErrno("getrandom");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string hostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string bootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Returns the process's namespace of that kind, for example "net:[4026531840]". It is empty without
// /proc.
std::string namespaceOf(const char* kind) {
  std::array<char, 64> link{};
  const std::string path = std::string("/proc/self/ns/") + kind;
  const ssize_t length = ::readlink(path.c_str(), link.data(), link.size() - 1);
  return length > 0 ? link.data() : "";
}

}  // namespace

std::string RankRecord::encode() const {
  std::ostringstream text;
  text << version << '\n'
       << id << '\n'
       << answers << '\n'
       << host << '\n'
       << place << '\n'
       << pid << '\n'
       << pid_space << '\n'
       << made_at << '\n'
       << secret << '\n'
       << world << '\n'
       << world_rank << '\n'
       << number << '\n'
       << accelerator << '\n';
  for (const int member : members) {
    text << member << ' ';
  }
  text << '\n';
  return text.str();
}

RankRecord RankRecord::decode(const std::string& text) {
  std::istringstream lines(text);
  RankRecord record;
  std::string pid;
  std::string made_at;
  std::string world_rank;
  std::string number;
  std::string members;
  for (std::string* field : {&record.version, &record.id, &record.answers, &record.host,
                             &record.place, &pid, &record.pid_space, &made_at, &record.secret,
                             &record.world, &world_rank, &number, &record.accelerator, &members}) {
    if (!std::getline(lines, *field)) {
      throw std::runtime_error("not a record of this version");
    }
  }
  record.pid = static_cast<pid_t>(std::stol(pid));
  record.made_at = std::stoll(made_at);
  record.world_rank = std::stoi(world_rank);
  record.number = static_cast<uint32_t>(std::stoul(number));
  std::istringstream list(members);
  record.members.assign(std::istream_iterator<int>(list), {});
  return record;
}

bool areUnixSocketsRefused() {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return !socket.valid() && errno != EMFILE && errno != ENFILE && errno != ENOMEM &&
         errno != ENOBUFS;
}

bool sharesNoMemory() {
  return env::isMpiForced() || areUnixSocketsRefused();
}

RankRecord describeThisRank(std::string accelerator, std::vector<int> members) {
  const env::MpiPlace mpi_place = mpi::World::place();
  const std::string pid_space = namespaceOf("pid");
  const std::string own = sharesNoMemory() ? pid_space + " " + std::to_string(::getpid()) : "";
  return {.version = BLUEFOG_VERSION,
          .id = randomHex(),
          .answers = "",
          .host = hostName(),
          .place = bootId() + " " + namespaceOf("net") + " " + own,
          .pid = ::getpid(),
          .pid_space = pid_space,
          .made_at = boot_clock::now(),
          .secret = randomHex(),
          .world = mpi_place.world,
          .world_rank = mpi_place.rank,
          .number = mpi::World::nextNumber(),
          .accelerator = std::move(accelerator),
          .members = std::move(members)};
}

}  // namespace bluefog
