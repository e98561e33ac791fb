// Collectives of host memory between machines: the twin of comm::HostGroup over gloo's connections.
// One Group for each rank; its calls come one at a time and wait for the other ranks.
//
// Gloo's own algorithms are not used: its ring sums in another order on each rank's part and would
// round 16-bit floats at every hop. Here each rank gets its part of everyone's and reduces it in
// the order of the ranks, which moves as many bytes as the ring in two steps instead of 2 (n - 1),
// and gives the bits that ranks of one machine get.
//
// Every collective begins with frames from each rank to each: what it calls, and with it what is
// small. They are compared before anything larger is sent. A rank that gives up says so to all in
// its last words; so does one that leaves.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>

#include "../comm/call_record.h"
#include "../comm/messages.h"
#include "world.h"

namespace shardwise::across {

// What one rank sends to each and gets from each in one step. Nothing goes to itself.
struct Step {
  struct Piece {
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
  std::vector<Piece> sent, received;
};

// Memory that grows, and is not cleared.
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
  // Waits for all members. Throws where gloo does.
  static Status join(World& world, const GlooGroup& plan, std::unique_ptr<Group>* out,
                     ErrorText* error);
  ~Group();  // leaves

  Status run(const CollectiveCall& call);
  // Of a call that is carried out elsewhere, and that the program counts by this number: all ranks
  // make it.
  Status compare(const CollectiveCall& call, uint64_t number);
  // Fails where another rank has given up, and sees to the end of a group that has failed.
  // Describes those that cannot be reached any more.
  Status look_around(ErrorText* lost, ErrorText* error);
  // After the last call: the others hear that this rank has left.
  void end();
  // From any thread, also while a call waits: the present and later calls of every rank fail with
  // the reason, which says who gives it.
  void fail_all(Code code, const char* reason);
  // What this rank cannot go on from.
  void give_up(const char* reason);
  void set_timeout(int64_t ms) { timeout_ms_.store(ms, std::memory_order_relaxed); }

 private:
  enum class End : uint32_t { None, Failed, Left };
  // The last that a rank says. Zeros until they have come.
  struct Words {
    comm::Note last;
    uint32_t has_called;
    Code code;
    char text[kErrorBytes];
    End end;  // comes last
  };
  // What is sent from memory of its own: the sender need not wait.
  struct Parcel {
    std::vector<char> data;
    std::unique_ptr<Buffer> buffer;
  };
  struct Peer {
    // What it sends in even and odd calls: it may be one call ahead.
    std::unique_ptr<char[]> frames[2], own_frame;
    std::unique_ptr<Buffer> incoming[2], outgoing, words_in, words_out;
    Words words = {};
    std::string lost;  // why it went before this rank had joined
    bool is_heard = false, is_told = false, has_frame_under_way = false;
    bool has_called = false;
    comm::Note last = {};
    std::deque<Parcel> parcels;
  };

  Group(Connections* connections, std::shared_ptr<Waits> waits, comm::Roster roster,
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
  Status begin(const comm::Note& note, ErrorText* error);
  Status begin_collective(const CollectiveCall& call, const comm::Call& described);
  Status begin_message(comm::Kind kind, const CollectiveCall& call, int64_t bytes);
  // The frames of a call with its first step.
  Status meet(const Step& step, ErrorText* error, const int64_t* sends = nullptr,
              const int64_t* receives = nullptr);
  Status send_frame(int32_t to, const Step& step, const int64_t* sends, const int64_t* receives,
                    ErrorText* error);
  Status await_frames(ErrorText* error);
  Status agree(ErrorText* error);
  Status what_differs(Status heard, ErrorText* error);
  // Of the frames that are there: this rank's, and those of the others.
  Status compare_frames(const std::vector<int32_t>& known, ErrorText* error);
  Status agree_on_exchange(ErrorText* error);
  int64_t frame_bytes() const;
  char* frame(int32_t from) { return peer(from).frames[calls_ % 2].get(); }

  // transfer.cc
  // What is larger than `above` bytes of a step.
  Status transfer(const Step& step, int64_t above, ErrorText* error);
  Status post(Buffer& buffer, Way way, int32_t peer, uint64_t slot, int64_t offset, int64_t bytes,
              ErrorText* error);
  // Until one operation of the buffer is done, with that peer.
  Status wait(Buffer& buffer, Way way, int32_t peer, ErrorText* error);
  Status send_all(Buffer& buffer, int32_t to, uint64_t slot, int64_t bytes, ErrorText* error);
  Status receive_all(Buffer& buffer, int32_t from, uint64_t slot, int64_t bytes, ErrorText* error);
  Status finish(Buffer& buffer, Way way, int32_t peer, int64_t bytes, ErrorText* error);

  // failure.cc
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void hear();
  bool is_gone(int32_t peer, std::string* why);
  Status look(int32_t awaited, ErrorText* error);
  Status report_gone(int32_t peer, const std::string& why, ErrorText* error);
  // Of a rank that waits for those: says so, and fails when the timeout is over.
  Status go_on_waiting(const std::vector<int32_t>& ranks, comm::Patience& patience,
                       ErrorText* error);
  Status time_out(const std::vector<int32_t>& ranks, int64_t waited_ms, ErrorText* error);
  Status fail_group(Code code, const char* text, ErrorText* error);
  Status refuse(const comm::Note& note, ErrorText* error);
  Status refuse_difference(const ErrorText& seen_here, const ErrorText& for_all, ErrorText* error);
  Status cause(ErrorText* error);
  Status failure(ErrorText* error);
  void keep_cause(Code code, const char* text);
  void say(End end, const char* text);
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
  struct Part {
    int64_t begin, count;
  };
  Part share(int64_t begin, int64_t count, int32_t rank) const;
  Status all_reduce(const CollectiveCall& call);
  Status reduce(const CollectiveCall& call);
  Status reduce_scatter(const CollectiveCall& call);
  // Each rank's part of `in`, the own one of all ranks reduced into `out`. The first one of a call
  // meets.
  Status reduce_parts(const CollectiveCall& call, const char* in, const std::vector<Part>& parts,
                      char* out, bool is_first);
  Status reduce_whole(const CollectiveCall& call, bool to_all);

  // messages.cc
  Status send(const CollectiveCall& call);
  Status receive(const CollectiveCall& call);

  const comm::Roster roster_;
  const int32_t rank_, size_;
  std::atomic<int64_t> timeout_ms_;
  std::unique_ptr<Connections> connections_;
  const std::shared_ptr<Waits> waits_;
  std::vector<Peer> peers_;
  Words own_words_ = {};
  Scratch scratch_, result_, message_;

  uint64_t calls_ = 0;  // collectives begun

  // of what follows and, against abort, of the connections and the buffers of last words
  std::mutex mutex_;
  comm::Note note_ = {};  // the present call, then the last
  bool has_called_ = false;
  std::atomic<bool> failed_{false};
  Code code_ = Code::Peer;
  ErrorText text_;
  Status refused_;  // a difference as this rank saw it
  ErrorText refused_text_;
};

}  // namespace shardwise::across
