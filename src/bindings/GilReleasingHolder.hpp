#pragma once

#include <pybind11/pybind11.h>

#include <c10/util/intrusive_ptr.h>

#include <utility>

namespace bluefog {

// A GilReleasingHolder is how Python holds a group. It releases the GIL while it drops the group,
// whose end joins threads that may need the GIL to drop a tensor. (Torch holds its own groups like
// that, by a class that is in none of its headers.) It shares ownership of the group.
// Thread safety: one thread at a time, as for a shared pointer.
template <class T>
class GilReleasingHolder {
 public:
  GilReleasingHolder() = default;
  GilReleasingHolder(c10::intrusive_ptr<T> held) : held_(std::move(held)) {}
  explicit GilReleasingHolder(T* held)
      : held_(c10::intrusive_ptr<T>::unsafe_steal_from_new(held)) {}
  GilReleasingHolder(const GilReleasingHolder&) = default;
  GilReleasingHolder(GilReleasingHolder&&) noexcept = default;
  GilReleasingHolder& operator=(const GilReleasingHolder&) = default;
  GilReleasingHolder& operator=(GilReleasingHolder&&) noexcept = default;
  ~GilReleasingHolder() {
    if (held_ && PyGILState_Check() != 0) {
      const pybind11::gil_scoped_release release;
      held_.reset();
    }
  }

  T& operator*() const { return *held_; }
  T* operator->() const { return held_.get(); }
  T* get() const { return held_.get(); }
  explicit operator bool() const { return static_cast<bool>(held_); }
  operator c10::intrusive_ptr<T>() const { return held_; }

 private:
  c10::intrusive_ptr<T> held_;
};

}  // namespace bluefog

PYBIND11_DECLARE_HOLDER_TYPE(T, bluefog::GilReleasingHolder<T>, true)
