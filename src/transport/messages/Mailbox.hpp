#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/memory/CallCounts.hpp"
#include "transport/memory/PendingWakeups.hpp"
#include "transport/memory/Ring.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/messages/ControlChannel.hpp"
#include "transport/messages/MatchQueue.hpp"
#include "transport/operations/Failure.hpp"
#include "transport/operations/MessageOp.hpp"
#include "transport/operations/Task.hpp"
#include "transport/tuning/StorePolicy.hpp"

namespace bluefog {

// One message on its way out.
struct SendState {
  int destination = 0;
  uint64_t id = 0;
  size_t bytes = 0;
  ControlMessage answer;
  bool is_sent = false;
  bool is_offered = false;
};

// An operation waits in vain for a rank that waits in another one.
struct DeadlockNotice {
  uint64_t waits;    // sequence number of the one
  Signature called;  // the other one
};

// Of a message that had already been sent.
struct LateMismatch {
  uint64_t sequence;
  Failure failure;
  bool is_of_call = false;
  bool is_of_device = false;  // a notice, of whose call another failure has told by then
};

// How point-to-point and neighbour operations move bytes. Every ordered pair of ranks has a lane.
// Messages on a lane are matched by their MatchKey: those of calls by the call's number. A small
// message goes at once; a large one is announced, and streams when its receiver has accepted it,
// until that wants no more, or is read in its sender's heap. So a lane never holds data that nobody
// takes, and an operation that waits for one rank stops no other. Used by the driving thread alone.
class Mailbox {
 public:
  Mailbox(const Segments& segments, const Membership& members, PendingWakeups& wakeups);

  // An expected message that is abandoned when the task that expects it is destroyed before it
  // came. Of one line, expect and send in the order of the calls: it decides what matches what.
  class PostedReceive {
   public:
    PostedReceive(Mailbox& mailbox, std::shared_ptr<ReceiveState> receive)
        : mailbox_(&mailbox), receive_(std::move(receive)) {}
    PostedReceive(PostedReceive&& other) noexcept = default;
    ~PostedReceive() {
      if (receive_) {
        mailbox_->abandon(*receive_);
      }
    }
    ReceiveState& operator*() const { return *receive_; }
    ReceiveState* operator->() const { return receive_.get(); }

   private:
    Mailbox* mailbox_;
    std::shared_ptr<ReceiveState> receive_;
  };

  // A message in its lane's queue from construction until its first frame was published, and known
  // to the answers until destruction. When that comes too early it keeps its place in the line: its
  // receiver hears that it was broken off.
  class PostedSend {
   public:
    PostedSend(Mailbox& mailbox, const MessageOp& op, const Outgoing& message);
    ~PostedSend();
    PostedSend(const PostedSend&) = delete;
    PostedSend& operator=(const PostedSend&) = delete;
    const SendState& operator*() const { return send_; }
    const SendState* operator->() const { return &send_; }

   private:
    friend class Mailbox;
    Mailbox& mailbox_;
    SendState send_;
    Frame announcement_;
  };

  class PeerCondition : public Awaitable {
   public:
    PeerCondition(Mailbox& mailbox, int peer) : mailbox_(mailbox), peer_(peer) {}
    std::vector<int> missing() const override { return {peer_}; }
    void await_resume() {}

   protected:
    ~PeerCondition() = default;
    Mailbox& mailbox_;
    int peer_;
  };

  // Fulfilled when it is this message's turn on its lane and there is a free slot.
  class SendTurn final : public PeerCondition {
   public:
    explicit SendTurn(const PostedSend& message)
        : PeerCondition(message.mailbox_, message->destination), message_(message) {}
    bool ready() override { return isNext() && mailbox_.lane(peer_).out.room(); }
    bool sleeps() const override { return !isNext(); }

   private:
    bool isNext() const { return mailbox_.lane(peer_).departing.front() == message_->id; }

    const PostedSend& message_;
  };
  // Fulfilled when the lane has a free slot, or the receiver of this streaming message wants no
  // more of it; whether it does.
  class LaneRoom final : public PeerCondition {
   public:
    explicit LaneRoom(const PostedSend& message)
        : PeerCondition(message.mailbox_, message->destination), message_(message) {}
    bool ready() override { return !await_resume() || mailbox_.lane(peer_).out.room(); }
    bool await_resume() const { return message_->answer.kind != ControlMessage::kWithdrawn; }

   private:
    const PostedSend& message_;
  };
  // Fulfilled when the receiver has answered; whether it accepted. Throws the mismatch of a
  // mismatch.
  class ReceiverAnswer final : public PeerCondition {
   public:
    ReceiverAnswer(const PostedSend& message, const MessageOp& op)
        : PeerCondition(message.mailbox_, message->destination), message_(message), op_(op) {}
    bool ready() override { return message_->answer.kind != ControlMessage::kNone; }
    bool sleeps() const override { return true; }
    bool await_resume() const;

   private:
    const PostedSend& message_;
    const MessageOp& op_;
  };
  // Fulfilled when the messages have reached that state.
  class StageReached final : public Awaitable {
   public:
    StageReached(const Mailbox& mailbox, std::vector<const ReceiveState*> messages,
                 ReceiveState::Stage stage)
        : mailbox_(mailbox), messages_(std::move(messages)), stage_(stage) {}
    bool ready() override;
    bool sleeps() const override { return true; }
    std::vector<int> missing() const override;
    std::optional<Failure> brokenOff() const override;
    bool anyWillDo() const override;
    void await_resume() {}

   private:
    const Mailbox& mailbox_;
    std::vector<const ReceiveState*> messages_;
    ReceiveState::Stage stage_;
  };
  // Fulfilled when the next frame of each of the accepted messages is at the head of its lane.
  class NextFrames final : public Awaitable {
   public:
    NextFrames(Mailbox& mailbox, const std::vector<PostedReceive>& messages)
        : mailbox_(mailbox), messages_(messages) {}
    bool ready() override { return missing().empty(); }
    std::vector<int> missing() const override;
    std::optional<Failure> brokenOff() const override;
    void await_resume() {}

   private:
    bool isHere(const ReceiveState& message) const;

    Mailbox& mailbox_;
    const std::vector<PostedReceive>& messages_;
  };
  // Fulfilled when the senders of these messages can see all that this rank has answered them: who
  // leaves says no more.
  class ControlFlushed final : public Awaitable {
   public:
    ControlFlushed(Mailbox& mailbox, const std::vector<PostedReceive>& messages)
        : mailbox_(mailbox), messages_(messages) {}
    bool ready() override { return missing().empty(); }
    std::vector<int> missing() const override;
    void await_resume() {}

   private:
    Mailbox& mailbox_;
    const std::vector<PostedReceive>& messages_;
  };
  // Only one operation at a time takes frames of several lanes in step: two could each wait for
  // what lies behind the other's frames.
  class InterleaveLock final : public Awaitable {
   public:
    explicit InterleaveLock(Mailbox& mailbox) : mailbox_(mailbox) {}
    bool ready() override { return !mailbox_.is_interleaving_; }
    std::vector<int> missing() const override { return {}; }
    [[nodiscard]] auto await_resume() {
      struct Release {
        void operator()(Mailbox* mailbox) const { mailbox->is_interleaving_ = false; }
      };
      mailbox_.is_interleaving_ = true;
      return std::unique_ptr<Mailbox, Release>(&mailbox_);
    }

   private:
    Mailbox& mailbox_;
  };

  // --- receiving
  PostedReceive expect(const MessageOp& op, int source, int64_t tag);
  // The second message behind one that has arrived. Who does not ask for it does not get it.
  PostedReceive expectSecond(ReceiveState& first);
  StageReached arrived(const ReceiveState& message);
  StageReached arrived(const std::vector<PostedReceive>& messages);
  StageReached completed(const ReceiveState& message);
  StageReached completed(const std::vector<PostedReceive>& messages);
  // Where an announced message lies in its sender's memory; null where that cannot be read here.
  const std::byte* offered(const ReceiveState& message);
  // How an average of so many bytes is best written that may be offered next. Readable from any
  // thread.
  Stores storesForOffer(size_t bytes) const;
  // After its bytes were read there: whether they were what was sent.
  bool isStillOffered(const ReceiveState& message) const;
  // Tells the sender of an announced message that its bytes were read where they lay.
  void noteTaken(ReceiveState& message);
  ControlFlushed controlFlushed(const std::vector<PostedReceive>& messages) {
    return {*this, messages};
  }
  // Asks the sender of an announced message to stream it.
  void accept(const PostedReceive& message, std::byte* sink);
  // Throws a mismatch, and tells the sender, where it called something else than `op`.
  void requireSame(ReceiveState& message, const MessageOp& op);
  // Throws, too, where the message has another length, or no multiple of it, though the calls are
  // the same.
  void requireSame(ReceiveState& message, const MessageOp& op, size_t bytes);
  void requireRows(ReceiveState& message, const MessageOp& op, size_t row);
  // Copies an arrived message there, or accepts it. completed() tells when it is there.
  void take(const PostedReceive& message, std::byte* place);
  NextFrames nextFrames(const std::vector<PostedReceive>& messages) { return {*this, messages}; }
  InterleaveLock interleaveLock() { return InterleaveLock(*this); }
  const std::byte* head(const ReceiveState& message);
  void pop(ReceiveState& message);

  // --- sending
  SendTurn turn(const PostedSend& message) { return SendTurn(message); }
  ReceiverAnswer answered(const PostedSend& message, const MessageOp& op) { return {message, op}; }
  // Why a message has failed whose receiver has withdrawn.
  Failure withdrawn(const PostedSend& message) const;
  LaneRoom room(const PostedSend& message) { return LaneRoom(message); }
  // Whether a small message is sent at once; otherwise it is announced as a large one. Else those
  // that the receiver does not expect yet would pile up there, and at last stop the lane.
  bool fitsEager(const Outgoing& message);
  // Whether that rank has taken in all frames from here.
  bool hasReadAll(int peer) const { return lanes_[static_cast<size_t>(peer)].out.allRead(); }
  // Tells a rank that it waits for this one in vain.
  void sendDeadlockNotice(int peer, const DeadlockNotice& here);
  // What that rank has told so, once.
  std::optional<DeadlockNotice> takeDeadlockNotice(int peer);
  // One frame each: all of a small message; that a large one is there; its bytes from there on, of
  // which it returns how many.
  void sendWhole(PostedSend& message, const Outgoing& from);
  void announce(PostedSend& message, const Outgoing& from);
  size_t sendPart(PostedSend& message, const Outgoing& from, size_t at);
  // Before the memory of such a message, and of earlier ones, changes: they stream, if they are
  // still wanted.
  void endOffers(int destination, uint64_t id);

  // --- small messages without an operation: see FastPath
  // Whether no message waits for another here, so that what lies in a lane is for the next call,
  // and no peer has told anything.
  bool isQuiet() const;
  // Whether one would go now.
  bool maySend(int destination, size_t bytes);
  void send(int destination, const Frame& frame, ConstSpan data);
  // The one that is next on that rank's lane, if it is the one of that call; or null.
  const Frame* next(int source, const Signature& signature, const MatchKey& key);
  // That one, of so many bytes.
  void drop(int source, size_t bytes);

  // Takes in what has come: matches messages, moves streamed bytes to their sinks, reads answers.
  // True when something moved.
  bool drain();
  // Sequence numbers of operations for which something has come, or whose turn it is, since the
  // last time.
  std::vector<uint64_t> takeRunnable() { return std::exchange(runnable_, {}); }
  // The oldest such one that was not taken yet.
  std::optional<LateMismatch> takeLateMismatch(
      const std::function<bool(const LateMismatch&)>& wanted);
  void tellLater(LateMismatch mismatch);
  // This rank expects all that it receives in that call: what else comes for it, or for an earlier
  // one, is refused.
  void noteCall(const Counter& counter, uint64_t number);
  // That rank's unnamed ones; nothing where it is on another host.
  std::optional<uint64_t> callsMadeBy(int peer) const;
  // This rank's unnamed ones.
  uint64_t lastCall() const { return calls_.of(Counter()); }
  // Whether the first frames of all messages are out.
  bool hasSentFirsts() const;
  // All counters go on from that number. What comes of calls before is dropped in silence.
  void align(uint64_t number);
  // Ends the waits for ranks of this host that have made that call, and sent nothing for it.
  void lookForPassed();
  // Why a message that is expected does not come: its source has made that call, or a later one.
  Failure passed(const ReceiveState& message) const;
  // What that rank has called that this one has not.
  std::optional<Signature> uncalledFrom(int peer) const;
  // Nothing is owed to those any more, nor waited for in vain.
  void giveUpOn(const RankSet& gone);
  // Of those, from which nothing lies in a lane: what does may be for any operation.
  RankSet silent(const RankSet& gone);

  // While it lives, tasks are destroyed for that reason, and the peers of their messages hear it.
  class CancelScope {
   public:
    CancelScope(Mailbox& mailbox, const std::optional<Failure>& why) : mailbox_(mailbox) {
      mailbox_.why_ = why ? mailbox_.cancelReasonFor(*why) : CancelReason();
    }
    ~CancelScope() { mailbox_.why_ = {}; }
    CancelScope(const CancelScope&) = delete;
    CancelScope& operator=(const CancelScope&) = delete;

   private:
    Mailbox& mailbox_;
  };
  // This rank leaves, of which its peers hear by themselves: from now on it does not say what it
  // breaks off.
  void fallSilent() { is_silent_ = true; }
  // Whether a peer may yet have to hear from it of an operation that has ended here.
  bool owesAnything() const;

  int rank() const { return members_.rank; }
  // So many bytes that peers have sent were read, and so many of results or copies written.
  void noteTouched(size_t read, size_t written) {
    read_.fetch_add(read, std::memory_order_relaxed);
    written_.fetch_add(written, std::memory_order_relaxed);
  }
  // Bytes handed to peers so far, and those noted. Readable from any thread.
  uint64_t bytesSent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t bytesRead() const { return read_.load(std::memory_order_relaxed); }
  uint64_t bytesWritten() const { return written_.load(std::memory_order_relaxed); }
  static size_t payload() { return Segment::laneShape().payload; }

 private:
  // Bytes of small messages to one receiver that it has not said to have taken, and how many it
  // takes between two times that it says so. With what the receiver needs to remember each.
  static constexpr size_t kCredit = size_t{32} << 20;
  static constexpr size_t kCreditStep = size_t{8} << 20;
  // Bytes that may wait unmatched from one sender before its lane is left full: nobody who keeps to
  // his credit comes to that.
  static constexpr size_t kMostUnexpected = size_t{64} << 20;
  // Behind an offer in its frame: the first bytes of what is offered, now and then, see
  // StorePolicy.
  static constexpr size_t kSampleAt = RingShape::kLine;
  static constexpr size_t kRemembered = 512;
  static constexpr size_t kMostLateMismatches = 64;

  struct Unsent {
    Frame announcement;
    CancelReason why;
  };
  struct Lane {  // to and from one peer
    RingWriter out;
    RingReader in;
    std::deque<uint64_t> departing;     // ids whose first frame is not out yet, in order
    std::map<uint64_t, Unsent> unsent;  // of those, whose operation has ended
    std::map<uint64_t, SendState*> unanswered;
    std::map<uint64_t, std::shared_ptr<ReceiveState>> coming;  // announced, or streaming
    std::map<uint64_t, CancelReason> broken_off;  // ids whose announcement is still in the lane
    uint64_t unseen_from = 0;                     // the first id that has not come out of the lane
    ControlChannel answers;
    std::atomic<uint64_t>* offers_over;  // of what this rank offers there
    const std::atomic<uint64_t>* their_offers_over;
    std::optional<Mapping> heap;  // the peer's, once it was looked for
    size_t unexpected_bytes = 0;
    size_t abandoned = 0;    // messages that nobody waits for, and that have not come
    bool is_gone = false;    // the peer: nothing comes, and nobody hears
    size_t uncredited = 0;   // bytes taken
    size_t outstanding = 0;  // bytes sent
    std::optional<DeadlockNotice> deadlock_notice;
  };

  PostedReceive expect(uint64_t receiver, int source, const MatchKey& key);
  // That rank has made that call, so what has not come from it for that one, or an earlier one,
  // does not come.
  void notePassed(const Counter& counter, uint64_t number, int source);
  void turnAway(const std::vector<std::shared_ptr<ReceiveState>>& unexpected);
  void turnAway(ReceiveState& message);
  // Null where it cannot be seen from here.
  const Mapping* heapOf(int peer);
  Lane& lane(int peer) { return lanes_[static_cast<size_t>(peer)]; }
  bool drainLane(int peer);
  bool drainAnswers(int peer);
  void hear(int peer, const ControlMessage& control);
  void hearBrokenOff(int peer, const ControlMessage& control);
  void noteLateMismatch(int peer, const ControlMessage& control);
  void turnDown(ReceiveState& message, const ControlMessage& control);
  [[noreturn]] void refuse(ReceiveState& message, const ControlMessage& control,
                           const Failure& failure);
  void leave(const ReceiveState& message);
  // Why a message has failed: its receiver has made that call without receiving it.
  Failure notReceived(int receiver, const Signature& sent, uint64_t number) const;
  bool sendAnswers(int peer);
  bool announceUnsent(int peer);
  // Stirs the operation whose message comes next.
  void nextTurn(Lane& to);
  bool deliver(int peer, const Frame& frame, const std::byte* payload);
  void fill(const std::shared_ptr<ReceiveState>& receive, int peer, const Frame& frame,
            const std::byte* payload);
  static size_t charge(size_t bytes) { return bytes + kRemembered; }
  static size_t charge(const ReceiveState& message) {
    return message.stage == ReceiveState::Stage::kHere ? charge(message.payload.size()) : 0;
  }
  void credit(int source, size_t charged);
  bool takeData(int peer, const Frame& frame, const std::byte* payload);
  // Copies what publish() sends off.
  void write(std::byte* to, const Outgoing& from, size_t at, size_t bytes);
  void publish(PostedSend& message, const Frame& frame);
  void sendOff(int peer, Frame& slot);
  void answer(int peer, const ControlMessage& control);
  StageReached reached(const std::vector<PostedReceive>& messages, ReceiveState::Stage stage);
  // Says that this rank's operation with the message of this id has ended too early.
  void breakOff(int peer, uint64_t id, ControlMessage::ControlKind how, const CancelReason& why);
  CancelReason cancelReasonFor(const Failure& failure) const;
  // Of an operation whose message that peer has broken off.
  Failure failureOf(int peer, const CancelReason& theirs) const;
  void abandon(ReceiveState& message);
  void popLane(int peer);

  const Membership& members_;
  PendingWakeups& wakeups_;
  const Segments& segments_;
  std::vector<Lane> lanes_;
  MatchQueue expected_;
  MatchQueue unexpected_;
  std::vector<uint64_t> runnable_;
  std::deque<LateMismatch> late_mismatches_;
  size_t abandoned_by_any_ = 0;  // as Lane's, of those that any rank may send
  bool is_interleaving_ = false;
  CancelReason why_;
  bool is_silent_ = false;
  StorePolicy store_policy_;
  CallCounts calls_;
  uint64_t aligned_ = 0;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> read_{0};
  std::atomic<uint64_t> written_{0};
};

}  // namespace bluefog
