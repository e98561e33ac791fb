// Collectives on host memory between machines: the counterpart of comm::HostGroup over connections
// of gloo. Each rank has one Group; its calls come one at a time and wait for the other ranks.
//
// Gloo's own algorithms are not used: its ring sums in a different order for each chunk and rounds
// 16-bit floats at every hop. Here each rank receives its chunk from all ranks and reduces it in
// rank order. That moves as many bytes as the ring, in two steps instead of 2 (n - 1), and gives
// the bits that ranks of one machine get.
//
// Every collective begins with frames from each rank to each: its call record, and small data with
// it. Ranks compare the frames before they send larger data. A rank that gives up or leaves sends a
// final message to all.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>

#include "../comm/call_record.h"
#include "../comm/messages.h"
#include "world.h"

namespace shardwise::gloo_engine {

// What one rank sends to and receives from each other rank in one step.
struct Step {
  struct Span {
    char* data;
    int64_t bytes;
  };
  explicit Step(int32_t size)
      : sent(static_cast<size_t>(size)), received(static_cast<size_t>(size)) {}
  void send(int32_t to, const void* data, int64_t bytes) {
    sent[to] = {static_cast<char*>(const_cast<void*>(data)), bytes};
  }
  void receive(int32_t from, void* data, int64_t bytes) {
    received[from] = {static_cast<char*>(data), bytes};
  }
  std::vector<Span> sent, received;
};

// Memory that grows on demand and is not cleared.
class Scratch {
 public:
  char* of(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset();
      data_.reset(new char[static_cast<size_t>(bytes)]);
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<char[]> data_;
  int64_t bytes_ = 0;
};

class Group {
 public:
  // Waits for all members. Throws what gloo throws.
  static Status join(World& world, const GlooGroup& plan, std::unique_ptr<Group>* out,
                     ErrorText* error);
  ~Group();  // leaves

  Status run(const CollectiveCall& call);
  // Compares a call that devices run, and that the program counts by this number.
  Status compare(const CollectiveCall& call, uint64_t number);
  // Fails if another rank has given up, and closes a group that has failed. Describes ranks that
  // cannot be reached.
  Status poll_peers(ErrorText* failure, ErrorText* error);
  // Called after the last call: informs the others that this rank has left.
  void end();
  // From any thread, also while a call waits: the present and later calls of every rank fail with
  // the reason, which names the rank that gives it.
  void fail_all(Code code, const ErrorText& reason);
  // For an error after which this rank cannot continue.
  void give_up(const ErrorText& reason);
  // Whether this rank waits for a rank that compiles. From any thread.
  bool is_delayed() const { return is_delayed_.load(std::memory_order_relaxed); }
  void set_timeout(int64_t ms) { timeout_ms_.store(ms, std::memory_order_relaxed); }

 private:
  enum class End : uint32_t { None, Failed, Left };
  // The final message of a rank. Zeros until it arrives.
  struct FinalMessage {
    comm::CallRecord last;
    uint32_t has_called;
    Code code;
    ErrorText cause;
    End end;  // must be last: it arrives last
  };
  // A message with its own memory, so that the sender need not wait.
  struct Parcel {
    std::vector<char> data;
    std::unique_ptr<Buffer> buffer;
  };
  struct Peer {
    // The peer's frames of even and odd calls: it may be one call ahead.
    std::unique_ptr<char[]> frames[2], own_frame;
    std::unique_ptr<Buffer> incoming[2], outgoing, final_in, final_out;
    FinalMessage final_message = {};
    std::string failure;  // why the peer left before this rank had joined
    bool is_observed = false, is_informed = false, is_frame_in_flight = false;
    bool has_called = false;
    comm::CallRecord last = {};
    std::deque<Parcel> parcels;
  };

  Group(Connections* connections, std::shared_ptr<Waits> waits, comm::GroupInfo group_info,
        int64_t timeout_ms);

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  Peer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  template <class Visit>
  void for_peers(Visit visit) {
    for (int32_t step = 1; step < size_; step++) visit((rank_ + step) % size_);
  }
  int64_t timeout_ms() const { return timeout_ms_.load(std::memory_order_relaxed); }

  // group.cc
  void await_peer(int32_t rank);
  Status dispatch(const CollectiveCall& call);
  Status end_call(Status status);
  void disconnect();

  // check_call.cc
  Status begin(const comm::CallRecord& record, ErrorText* error);
  Status begin_collective(const CollectiveCall& call, const comm::Call& described);
  Status begin_message(comm::Kind kind, const CollectiveCall& call, int64_t bytes);
  // Exchanges the frames of a call, with the data of its first step.
  Status exchange_frames(const Step& step, ErrorText* error, const int64_t* sends = nullptr,
                         const int64_t* receives = nullptr);
  Status send_frame(int32_t to, const Step& step, const int64_t* sends, const int64_t* receives,
                    ErrorText* error);
  Status await_frames(ErrorText* error);
  Status agree(ErrorText* error);
  Status what_differs(Status observed, ErrorText* error);
  // Compares the frames that have arrived with that of this rank.
  Status compare_frames(const std::vector<int32_t>& known, ErrorText* error);
  Status agree_on_exchange(ErrorText* error);
  int64_t frame_bytes() const;
  char* frame(int32_t from) { return peer(from).frames[calls_ % 2].get(); }

  // Transfers the data of a step that is larger than `above` bytes.
  Status transfer(const Step& step, int64_t above, ErrorText* error);
  Status post(Buffer& buffer, Direction direction, int32_t peer, uint64_t slot, int64_t offset,
              int64_t bytes, ErrorText* error);
  // Waits until one operation of the buffer with that peer is complete.
  Status wait(Buffer& buffer, Direction direction, int32_t peer, ErrorText* error);
  Status send_all(Buffer& buffer, int32_t to, uint64_t slot, int64_t bytes, ErrorText* error);
  Status receive_all(Buffer& buffer, int32_t from, uint64_t slot, int64_t bytes, ErrorText* error);
  Status finish(Buffer& buffer, Direction direction, int32_t peer, int64_t bytes, ErrorText* error);

  // failure.cc
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void observe_peers();
  bool is_gone(int32_t peer, std::string* why);
  Status check_peer(int32_t awaited, ErrorText* error);
  Status report_gone(int32_t peer, const std::string& why, ErrorText* error);
  // Publishes that this rank waits for `ranks`; fails when the timeout is over.
  Status go_on_waiting(const std::vector<int32_t>& ranks, comm::Deadline& deadline,
                       ErrorText* error);
  Status time_out(const std::vector<int32_t>& ranks, int64_t waited_ms, ErrorText* error);
  Status fail_group(Code code, const ErrorText& why, ErrorText* error);
  Status refuse(const comm::CallRecord& record, ErrorText* error);
  Status refuse_mismatch(ErrorText& seen_here, ErrorText& for_all, ErrorText* error);
  Status cause(ErrorText* error);
  Status failure(ErrorText* error);
  void keep_cause(Code code, const ErrorText& why);
  void say(End end, const ErrorText& why);
  void flush(int64_t limit_ms, bool parcels);
  Status fail_for(const comm::Missing& missing, const std::string& limit,
                  std::vector<int32_t> culprits, ErrorText* error);
  void miss(comm::Missing& missing, int32_t rank, const char* has);

  // collectives.cc
  Status broadcast(const CollectiveCall& call);
  Status gather(const CollectiveCall& call, bool to_all);
  Status scatter(const CollectiveCall& call);
  Status all_to_all(const CollectiveCall& call);
  Status barrier(const CollectiveCall& call);

  // reductions.cc
  struct Chunk {
    int64_t begin, count;
  };
  Chunk share(int64_t begin, int64_t count, int32_t rank) const;
  Status all_reduce(const CollectiveCall& call);
  Status reduce(const CollectiveCall& call);
  Status reduce_scatter(const CollectiveCall& call);
  // Each rank sends its chunks of `in`; `out` gets this rank's chunk, reduced over all ranks. The
  // first call of a collective exchanges frames.
  Status reduce_chunks(const CollectiveCall& call, const char* in, const std::vector<Chunk>& chunks,
                       char* out, bool is_first);
  Status reduce_whole(const CollectiveCall& call, bool to_all);

  // messages.cc
  Status send(const CollectiveCall& call);
  Status receive(const CollectiveCall& call);

  const comm::GroupInfo group_info_;
  const int32_t rank_, size_;
  std::atomic<int64_t> timeout_ms_;
  std::unique_ptr<Connections> connections_;
  const std::shared_ptr<Waits> waits_;
  std::vector<Peer> peers_;
  FinalMessage own_final_ = {};
  Scratch scratch_, result_, message_;

  uint64_t calls_ = 0;  // collectives begun

  // guards the fields below and, against abort, the connections and the buffers of final messages
  std::mutex mutex_;
  comm::CallRecord record_ = {};  // the present or the last call
  bool has_called_ = false;
  std::atomic<bool> failed_{false}, is_delayed_{false};
  Code code_ = Code::Peer;
  ErrorText text_;
  Status refused_;  // a mismatch as this rank saw it
  ErrorText refused_text_;
};

}  // namespace shardwise::gloo_engine
