#include "process_group/work/WorkBluefog.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <utility>

#include "core/Error.hpp"

namespace bluefog {

WorkBluefog::WorkBluefog(std::shared_ptr<Engine> engine, Context context, std::shared_ptr<Op> op,
                         c10d::OpType type, const char* profiling_title,
                         const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                         std::shared_ptr<int> source)
    // Opening a range costs an allocation even if nobody records.
    : c10d::Work(engine->members().rank, type, at::hasCallbacks() ? profiling_title : nullptr,
                 at::hasCallbacks() ? std::make_optional(inputs) : std::nullopt),
      engine_(std::move(engine)),
      context_(std::move(context)),
      op_(std::move(op)),
      outputs_(std::move(outputs)),
      source_(std::move(source)) {}

bool WorkBluefog::isCompleted() {
  return done();
}

bool WorkBluefog::isSuccess() const {
  return done() && !op_->error;
}

std::exception_ptr WorkBluefog::exception() const {
  return done() && op_->error ? context_.raised(op_->error) : nullptr;
}

int WorkBluefog::sourceRank() const {
  TORCH_CHECK(source_ != nullptr, "[bluefog] sourceRank: only a receive has a source");
  return *source_;
}

std::vector<at::Tensor> WorkBluefog::result() {
  TORCH_CHECK(done(), "[bluefog] result: the operation has not ended yet; wait() for it");
  check();
  return outputs_;
}

float WorkBluefog::getDuration() const {
  TORCH_CHECK(done(), "[bluefog] getDuration: the operation has not ended yet; wait() for it");
  return std::chrono::duration<float, std::milli>(op_->ended - op_->issued).count();
}

// Collectives and messages are counted apart.
uint64_t WorkBluefog::completionKey() const {
  return context_.events->keyOf(2 * op_->sequence + (op_->asMessage() != nullptr ? 1 : 0));
}

void WorkBluefog::checkProcess() const {
  TORCH_CHECK(!engine_->isForked(),
              "[bluefog] this operation belongs to the process that this one was forked from");
}

bool WorkBluefog::wait(std::chrono::milliseconds timeout) {
  checkProcess();
  const Deadline limit = timeout.count() > 0 ? Deadline::in(timeout) : Deadline::never();
  if (!engine_->wait(*op_, limit)) {
    throw Error(Cause::kTimeout, {},
                prefix(engine_->members(), *op_) + "timeout of wait() after " + inSeconds(timeout) +
                    "; the operation goes on until its own deadline");
  }
  conclude();
  {
    // Another thread may be closing the profiler's range. A profiler that stops after wait() would
    // free what that thread writes to.
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [this] { return completed_; });
  }
  check();
  return true;
}

void WorkBluefog::check() const {
  if (const std::exception_ptr error = exception()) {
    std::rethrow_exception(error);
  }
}

void WorkBluefog::abort() {
  checkProcess();
  engine_->stop(aborted("Work.abort() was called on this rank"));
  engine_->shutdown();
}

c10::intrusive_ptr<c10::ivalue::Future> WorkBluefog::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::unique_lock lock(future_mutex_);
    if (!future_) {
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      if (!op_->settleCallingBack(true)) {
        // The operation has ended, and it is settled that its end calls nobody back. So conclude(),
        // which the driving thread may run, leaves this future alone.
        complete(*future_);
      }
    }
    future = future_;
  }
  // The thread that calls back may be late. A thread that has seen isCompleted() must find the
  // future done all the same.
  if (done()) {
    conclude();
  }
  return future;
}

void WorkBluefog::complete(c10::ivalue::Future& future) const {
  if (const std::exception_ptr error = exception()) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs_));
  }
}

void WorkBluefog::conclude() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  bool first = false;
  {
    const std::unique_lock lock(future_mutex_);
    first = !std::exchange(concluded_, true);
    if (op_->settleCallingBack(false)) {
      future = future_;
    }
  }
  if (first) {
    std::exception_ptr error;
    try {
      error = exception();
      // A collective that fails ends all later ones of its group, as an abort does.
      if (error != nullptr && op_->asMessage() == nullptr) {
        context_.events->noteFailure();
      }
    } catch (...) {
      // There is no memory, or no thread. Other threads wait for finish() all the same.
      error = error != nullptr ? error : std::current_exception();
    }
    finish(error);
    if (error == nullptr && context_.events->hooks().completion.any()) {
      context_.events->hooks().completion.call(completionKey(), getDuration());
    }
  }
  if (future && first) {
    complete(*future);  // runs callbacks, so the lock must be free
  } else if (future) {
    future->wait();  // another thread is about to complete it
  }
}

}  // namespace bluefog
