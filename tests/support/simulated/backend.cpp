// This is the simulated accelerator's backend, and the Python module. Like NCCL, the backend has a
// stream of its own, which follows the caller's current one, and its Works make the current stream
// wait. The bytes go through gloo.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "streams.hpp"

namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
constexpr auto kType = c10::DeviceType::PrivateUse1;

at::Tensor onCpu(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

Tensors onCpu(const Tensors& tensors) {
  Tensors all;
  for (const at::Tensor& tensor : tensors) {
    all.push_back(onCpu(tensor));
  }
  return all;
}

// A SimulatedWork holds the tensors until somebody has waited, as NCCL's Work does.
class SimulatedWork : public c10d::Work {
 public:
  SimulatedWork(int rank, simulated::Stream& stream, Tensors held, Tensors outputs)
      : c10d::Work(rank, c10d::OpType::UNKNOWN),
        held_(std::move(held)),
        outputs_(std::move(outputs)) {
    done_.record(stream);
  }
  bool isCompleted() override { return done_.isReached(); }
  bool isSuccess() const override { return true; }
  Tensors result() override { return outputs_; }
  void synchronize() override { done_.block(simulated::current()); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    held_.clear();
    return true;
  }

 private:
  simulated::Event done_;
  Tensors held_;
  Tensors outputs_;
};

// Messages are the sends and receives that the backend has gloo do. After abort(), none of them
// waits any longer, whether its data has come or not.
// Thread safety: any thread.
class Messages {
 public:
  using Post = std::function<WorkPtr()>;

  // Runs in the thread of a stream.
  void run(const std::vector<Post>& posts) {
    std::vector<WorkPtr> works;
    try {
      for (const Post& post : posts) {
        const std::lock_guard lock(mutex_);
        if (is_aborted_) {
          return;
        }
        works.push_back(post());
        pending_.insert(works.back());
      }
      for (const WorkPtr& work : works) {
        work->wait();
        const std::lock_guard lock(mutex_);
        pending_.erase(work);
      }
      // At this point NCCL would wait on.
    } catch (const std::exception&) {
      std::unique_lock lock(mutex_);
      aborted_.wait(lock, [this] { return is_aborted_; });
    }
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    aborted_.notify_all();
    for (const WorkPtr& work : pending_) {
      work->abort();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable aborted_;
  std::set<WorkPtr> pending_;
  bool is_aborted_ = false;
};

// Batches counts one thread's open batches as torch counts NCCL's: the count stays wrong if a batch
// is left closed.
class Batches {
 public:
  void start() {
    ++open_;
    ++begun_;
  }
  void end() {
    endOne();
    --begun_;
  }
  void close() {
    for (int i = 0; i < begun_; ++i) {
      endOne();
    }
  }
  void openAgain() { open_ += begun_; }

 private:
  void endOne() {
    if (open_ == 0) {
      C10_THROW_ERROR(DistBackendError, "ncclGroupEnd: not in a group call");
    }
    --open_;
  }
  int open_ = 0;
  int begun_ = 0;
};
thread_local Batches batches;
std::atomic<int> shutdowns{0};  // of all backends of this process

class SimulatedBackend : public c10d::Backend {
 public:
  SimulatedBackend(int rank, int size, c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(rank, size), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "simccl"; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override {
    ++splits_;
    auto part = gloo_->split(store, ranks, opts);
    if (part == nullptr) {
      return nullptr;
    }
    const int rank = part->getRank();
    const int size = part->getSize();
    return c10::make_intrusive<SimulatedBackend>(rank, size, std::move(part));
  }
  int splits() const { return splits_; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return issue(
        tensors, tensors,
        [gloo = gloo_, cpu = onCpu(tensors), opts]() mutable {
          gloo->allreduce(cpu, opts)->wait();
        },
        opts.asyncOp);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return issue(
        tensors, tensors,
        [gloo = gloo_, cpu = onCpu(tensors), opts]() mutable {
          gloo->broadcast(cpu, opts)->wait();
        },
        opts.asyncOp);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return issue(
        tensors, tensors,
        [gloo = gloo_, cpu = onCpu(tensors), opts]() mutable { gloo->reduce(cpu, opts)->wait(); },
        opts.asyncOp);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    return issue(
        both(inputs, outputs[0]), outputs[0],
        [gloo = gloo_, to = std::vector<Tensors>{onCpu(outputs[0])}, from = onCpu(inputs),
         opts]() mutable { gloo->allgather(to, from, opts)->wait(); },
        opts.asyncOp);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return issue(
        both(outputs, inputs[0]), outputs,
        [gloo = gloo_, to = onCpu(outputs), from = std::vector<Tensors>{onCpu(inputs[0])},
         opts]() mutable { gloo->reduce_scatter(to, from, opts)->wait(); },
        opts.asyncOp);
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return issue({}, {}, [gloo = gloo_, opts] { gloo->barrier(opts)->wait(); });
  }
  // Messages of different sizes do not match.
  WorkPtr send(Tensors& tensors, int to, int) override {
    return message(tensors, [gloo = gloo_, cpu = onCpu(tensors[0]), to] {
      Tensors list{cpu};
      return gloo->send(list, to, tagOf(cpu));
    });
  }
  WorkPtr recv(Tensors& tensors, int from, int) override {
    return message(tensors, [gloo = gloo_, cpu = onCpu(tensors[0]), from] {
      Tensors list{cpu};
      return gloo->recv(list, from, tagOf(cpu));
    });
  }
  void abort() override { messages_->abort(); }
  void shutdown() override { ++shutdowns; }
  void startCoalescing() override {
    is_coalescing_ = true;
    batches.start();
  }
  WorkPtr endCoalescing() override {
    batches.end();
    is_coalescing_ = false;
    if (batch_.empty()) {
      return nullptr;
    }
    return issue(
        std::exchange(held_, {}), {},
        [messages = messages_, batch = std::exchange(batch_, {})] { messages->run(batch); });
  }

 private:
  using Post = Messages::Post;

  static int tagOf(const at::Tensor& tensor) { return static_cast<int>(tensor.nbytes()); }
  static Tensors both(Tensors one, const Tensors& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
  }
  // A call that is not asynchronous goes into the current stream and has no Work, as with NCCL.
  WorkPtr issue(Tensors held, Tensors outputs, simulated::Stream::Work work, bool async_op = true) {
    connect();
    if (!async_op) {
      simulated::current().put(std::move(work));
      return nullptr;
    }
    simulated::Stream& stream = simulated::stream(1);
    simulated::Event ready;
    ready.record(simulated::current());
    ready.block(stream);
    stream.put(std::move(work));
    return c10::make_intrusive<SimulatedWork>(rank_, stream, std::move(held), std::move(outputs));
  }
  // Connects at the first call. NCCL closes the thread's batches meanwhile.
  void connect() {
    if (is_connected_) {
      return;
    }
    batches.close();
    if (std::getenv("SIMULATED_DUPLICATE") != nullptr) {
      // NCCL's error has this text.
      C10_THROW_ERROR(DistBackendError, "Duplicate GPU detected : rank 0 and rank 1");
    }
    batches.openAgain();
    is_connected_ = true;
  }
  WorkPtr message(Tensors& tensors, Post post) {
    if (is_coalescing_) {
      connect();
      held_.push_back(tensors[0]);
      batch_.push_back(std::move(post));
      return nullptr;
    }
    return issue(tensors, tensors, [messages = messages_, post] { messages->run({post}); });
  }

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  int splits_ = 0;
  const std::shared_ptr<Messages> messages_ = std::make_shared<Messages>();
  bool is_coalescing_ = false;
  bool is_connected_ = false;
  std::vector<Post> batch_;
  Tensors held_;
};

void later(int milliseconds, simulated::Stream::Work work) {
  simulated::current().put([milliseconds, work = std::move(work)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    work();
  });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<SimulatedBackend, c10d::Backend, c10::intrusive_ptr<SimulatedBackend>>(module,
                                                                                    "Backend")
      .def(py::init<int, int, c10::intrusive_ptr<c10d::Backend>>())
      .def("comm_split_count", &SimulatedBackend::splits);  // as NCCL's backend has it
  // These functions put kernels into the current stream, which take so many milliseconds before
  // they act.
  module.def("fill", [](const at::Tensor& tensor, double value, int milliseconds) {
    later(milliseconds, [cpu = onCpu(tensor), value]() { at::Tensor(cpu).fill_(value); });
  });
  module.def("copy", [](const at::Tensor& to, const at::Tensor& from, int milliseconds) {
    later(milliseconds, [to = onCpu(to), from = onCpu(from)]() { at::Tensor(to).copy_(from); });
  });
  module.def("current_device",
             [] { return c10::impl::VirtualGuardImpl(kType).getDevice().index(); });
  module.def("set_device", [](c10::DeviceIndex index) {
    c10::impl::VirtualGuardImpl(kType).setDevice({kType, index});
  });
  module.def("exchange_stream", &simulated::exchangeCurrentId);
  module.def("shutdowns", [] { return shutdowns.load(); });
  module.def("is_idle", [] { return simulated::current().isIdle(); });
  module.def(
      "synchronize", [] { c10::impl::VirtualGuardImpl(kType).synchronizeDevice(0); }, Release());
}
