#include "bootstrap/pmix/Server.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace bluefog::pmix {
namespace {

// Returns the function that handles fences. PMIx knows only one server in a process, and its
// callback gets no pointer to that.
Server::Fence& fenceOfServer() {
  static Server::Fence fence;
  return fence;
}

Status connected(const Proc*, void*, Info*, size_t, OpCallback callback, void* data) {
  if (callback != nullptr) {
    callback(kSuccess, data);
  }
  return kSuccess;
}

Status finalized(const Proc*, void*, OpCallback callback, void* data) {
  if (callback != nullptr) {
    callback(kSuccess, data);
  }
  return kSuccess;
}

Status aborted(const Proc*, void*, int, const char*, Proc*, size_t, OpCallback callback,
               void* data) {
  if (callback != nullptr) {
    callback(kSuccess, data);
  }
  return kSuccess;
}

Status fence(const Proc*, size_t, const Info*, size_t, char* blob, size_t size,
             ModexCallback callback, void* data) {
  fenceOfServer()(std::string(blob, size), [callback, data](const std::string* all) {
    if (all == nullptr) {
      callback(kErrTimeout, nullptr, 0, data, nullptr, nullptr);
      return;
    }
    char* copy = static_cast<char*>(std::malloc(all->size() + 1));  // PMIx frees it by free()
    std::memcpy(copy, all->data(), all->size());
    callback(kSuccess, copy, all->size(), data, std::free, copy);
  });
  return kSuccess;
}

Status directModex(const Proc*, const Info*, size_t, ModexCallback, void*) {
  return kErrNotSupported;  // each fence brings everything
}

// A Done waits for the end of a PMIx call, which may return at once or call back later.
class Done {
 public:
  static void callback(Status status, void* data) {
    static_cast<Done*>(data)->status_.set_value(status);
  }
  Status wait(Status returned) {
    if (returned == kOperationSucceeded) {
      return kSuccess;
    }
    return returned == kSuccess ? status_.get_future().get() : returned;
  }

 private:
  std::promise<Status> status_;
};

Proc procOf(const std::string& nspace, Rank rank) {
  Proc proc{};
  nspace.copy(proc.nspace, kMaxNspace);
  proc.rank = rank;
  return proc;
}

Info infoOf(const char* key, uint16_t type) {
  Info info{};
  std::strncpy(info.key, key, kMaxKey);
  info.value.type = type;
  return info;
}

Info number(const char* key, size_t value) {
  Info info = infoOf(key, kTypeUint32);
  info.value.data.uint32 = static_cast<uint32_t>(value);
  return info;
}

Info smallNumber(const char* key, size_t value) {
  Info info = infoOf(key, kTypeUint16);
  info.value.data.uint16 = static_cast<uint16_t>(value);
  return info;
}

Info rankInfo(const char* key, int rank) {
  Info info = infoOf(key, kTypeProcRank);
  info.value.data.rank = static_cast<Rank>(rank);
  return info;
}

// PMIx copies what it is given, so `value` need only live until the call has ended.
Info text(const char* key, const std::string& value, uint16_t type = kTypeString) {
  Info info = infoOf(key, type);
  info.value.data.string = const_cast<char*>(value.c_str());
  return info;
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text.append(text.empty() ? "" : ",").append(std::to_string(rank));
  }
  return text;
}

std::string taken(char* text) {
  const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
  return owned.get();
}

// RankInfos holds the attributes of each rank of a job. The job must outlive it.
class RankInfos {
 public:
  RankInfos(const Job& job) {
    for (size_t host = 0; host < job.hosts.size(); ++host) {
      const std::vector<int>& ranks = job.hosts[host].ranks;
      for (size_t local = 0; local < ranks.size(); ++local) {
        add({rankInfo("pmix.rank", ranks[local]), smallNumber("pmix.lrank", local),
             smallNumber("pmix.nrank", local), number("pmix.nodeid", host),
             text("pmix.hname", job.hosts[host].name), number("pmix.appnum", 0),
             rankInfo("pmix.grank", ranks[local])});
      }
    }
  }

  void appendTo(std::vector<Info>& infos) {
    for (DataArray& each : arrays_) {
      Info info = infoOf("pmix.pdata", kTypeDataArray);
      info.value.data.darray = &each;
      infos.push_back(info);
    }
  }

 private:
  void add(std::vector<Info> infos) {
    infos_.push_back(std::move(infos));
    arrays_.push_back({kTypeInfo, infos_.back().size(), infos_.back().data()});
  }

  std::deque<std::vector<Info>> infos_;
  std::deque<DataArray> arrays_;
};

}  // namespace

Server::Server(const PmixLibrary& library, const Job& job, const std::string& folder, Fence fence_)
    : library_(library), job_(job) {
  fenceOfServer() = std::move(fence_);
  static ServerModule module;
  module.client_connected2 = connected;
  module.client_finalized = finalized;
  module.abort = aborted;
  module.fence = fence;
  module.direct_modex = directModex;
  std::vector<Info> infos{text("pmix.srvr.tmpdir", folder), text("pmix.hname", job.host().name)};
  check(library_.server_init(&module, infos.data(), infos.size()), "PMIx_server_init");
  registerJob(folder);
  for (const int rank : job.host().ranks) {
    const Proc proc = procOf(job.nspace, static_cast<Rank>(rank));
    Done done;
    check(done.wait(library_.register_client(&proc, ::getuid(), ::getgid(), nullptr,
                                             &Done::callback, &done)),
          "PMIx_server_register_client");
  }
}

Server::~Server() {
  library_.server_finalize();
}

void Server::registerJob(const std::string& folder) const {
  std::string names;
  std::string ranks;
  for (const Job::Host& host : job_.hosts) {
    names.append(names.empty() ? "" : ",").append(host.name);
    ranks.append(ranks.empty() ? "" : ";").append(joined(host.ranks));
  }
  char* regex = nullptr;
  check(library_.generate_regex(names.c_str(), &regex), "PMIx_generate_regex");
  const std::string node_map = taken(regex);
  check(library_.generate_ppn(ranks.c_str(), &regex), "PMIx_generate_ppn");
  const std::string process_map = taken(regex);
  const std::string local_peers = joined(job_.host().ranks);

  std::vector<Info> infos{
      number("pmix.univ.size", job_.size()),
      number("pmix.job.size", job_.size()),
      number("pmix.max.size", job_.size()),
      number("pmix.local.size", job_.host().ranks.size()),
      number("pmix.num.nodes", job_.hosts.size()),
      number("pmix.nodeid", job_.here),
      text("pmix.jobid", job_.nspace),
      text("pmix.nmap", node_map, kTypeRegex),
      text("pmix.pmap", process_map, kTypeRegex),
      text("pmix.lpeers", local_peers),
      text("pmix.nsdir", folder),
      text("pmix.tmpdir", folder),
  };
  RankInfos of_ranks(job_);
  of_ranks.appendTo(infos);
  Done done;
  check(done.wait(library_.register_nspace(job_.nspace.c_str(),
                                           static_cast<int>(job_.host().ranks.size()), infos.data(),
                                           infos.size(), &Done::callback, &done)),
        "PMIx_server_register_nspace");
}

std::vector<std::string> Server::environment(int rank) const {
  const Proc proc = procOf(job_.nspace, static_cast<Rank>(rank));
  char** variables = nullptr;
  check(library_.setup_fork(&proc, &variables), "PMIx_server_setup_fork");
  std::vector<std::string> list;
  for (char** each = variables; each != nullptr && *each != nullptr; ++each) {
    list.push_back(taken(*each));
  }
  std::free(variables);
  return list;
}

void Server::notifyDeath(int rank) const {
  const Proc source = procOf(job_.nspace, kRankUndefined);
  Proc dead = procOf(job_.nspace, static_cast<Rank>(rank));
  Info info = infoOf("pmix.evproc", kTypeProc);
  info.value.data.proc = &dead;
  Done done;
  check(done.wait(library_.notify_event(kErrProcAborted, &source, kRangeSession, &info, 1,
                                        &Done::callback, &done)),
        "PMIx_Notify_event");
}

void Server::check(Status status, const char* call) const {
  if (status != kSuccess) {
    throw std::runtime_error(std::string(call) + ": " + library_.error_string(status));
  }
}

}  // namespace bluefog::pmix
