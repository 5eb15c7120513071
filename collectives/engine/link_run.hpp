// LinkRun: the execution of one program over links.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine/buffers.hpp"
#include "collectives/engine/peer_table.hpp"
#include "collectives/engine/prepared_program.hpp"
#include "collectives/engine/run_progress.hpp"

namespace lockstep::internal {

/// What a run makes of frames that are not what it awaits.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Probes, revokes, frames of another call. True when it was consumed.
  virtual Result<bool> on_frame(int peer, Channel channel, const FrameHeader& header, Link& link) = 0;
  /// The error for a frame of the very call that has not the `expected` size.
  virtual Status wrong_size(int peer, const FrameHeader& header, std::uint64_t expected) = 0;
};

class LinkRun {
 public:
  /// Buffers must stay valid until the run is over (or abandon() was called). Keeps capacity from run to run:
  /// no allocation on repeats.
  void begin(std::shared_ptr<const PreparedProgram> program, const Buffers& buffers, const Combine& combine,
             const CallFacts& facts, std::uint64_t sequence);

  /// Moves every lane as far as it goes. Never blocks. An error ends the run. `alone`: no other run shares
  /// the links of `peers`, so what arrives is most likely for this one.
  Result<RunProgress> step(PeerTable& peers, FrameHandler& handler, bool alone);

  /// After a failure: leaves half-sent messages to the table; the caller's memory is not touched any more.
  void abandon(PeerTable& peers);

  /// The peers that the unfinished lanes wait for now, appended.
  void waiting_for(std::vector<int>& peers) const;
  /// A peer that went on to later calls without sending what this run awaits, or kSelf: the run cannot end
  /// well.
  int passed_by() const { return passed_by_; }
  /// Payload bytes of the message at the head of `peer`'s stream that this run has taken.
  std::uint64_t taken_from(int peer) const;

 private:
  struct LaneState {
    std::uint32_t next = 0;      // Step to run.
    bool matched = false;        // recv: the head message is this step's.
    SendCursor cursor;           // send
    std::uint64_t received = 0;  // recv: bytes

    void advance() {
      ++next;
      matched = false;
      cursor = {};
      received = 0;
    }
  };
  struct Attempt {
    bool moved = false;
    bool complete = false;
  };
  bool ready(const Step& step) const;
  Result<Attempt> run_step(std::size_t lane, PeerTable& peers, FrameHandler& handler);
  Result<Attempt> run_send(std::size_t lane, const Step& step, PeerTable& peers);
  Result<Attempt> run_receive(std::size_t lane, const Step& step, PeerTable& peers, FrameHandler& handler);
  Result<bool> match(std::size_t lane, const Step& step, Channel channel, Link& link, FrameHandler& handler);
  Result<bool> drain_payload(LaneState& state, const Step& step, Link& link);
  void run_local(const Step& step);
  /// Of the message that the lane's step sends or receives, `payload`.
  FrameHeader header_of(std::size_t lane, const Slice& payload) const;
  Awaited awaited_of(std::size_t lane, const Step& step) const;

  std::shared_ptr<const PreparedProgram> program_;
  Buffers buffers_;
  Combine combine_;
  CallFacts facts_;
  std::uint64_t sequence_ = 0;
  std::vector<LaneState> lanes_;
  int passed_by_ = kSelf;
  bool alone_ = false;
};

/// Drops the head message of a link, of whose payload `taken` bytes are consumed. False while not all of it
/// is here: then `taken` has grown. True: `taken` is 0, for the next message.
Result<bool> drop_message(Link& link, const FrameHeader& header, std::uint64_t& taken);

}  // namespace lockstep::internal
