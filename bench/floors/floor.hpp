// Floors: all_reduce (f32 sum, in place) as a hand-written loop with no library around it, no checks, no
// other sizes or types. Limits to measure beside, not designs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/floors/shared_file.hpp"
#include "bench/peers/harness.hpp"

namespace floors {

using Run = std::function<void()>;

/// Buffers that all ranks map: one exchange of flags, one fused pass in which each rank reads its share of
/// all inputs and writes it to all outputs, one exchange of flags. To 40 bytes the payload rides in the
/// flag's line.
class Registered {
 public:
  Registered(const peers::Place& place, peers::Board& board);
  float* allocate(std::size_t bytes);
  void release(float* memory);
  Run bind(std::size_t bytes, float* memory);

 private:
  struct Block {
    std::string path;  ///< Of this rank's part.
    std::vector<SharedFile> parts;
    std::vector<float*> data;  ///< By rank.
  };
  void in_line(std::size_t bytes, float* memory);
  void fused(std::size_t bytes, const std::vector<float*>& data);
  void exchange(Flag* flags, std::uint64_t step);

  peers::Place place_;
  peers::Board& board_;
  SharedFile flags_;
  Flag *ready_, *done_, *lines_;
  std::uint64_t step_ = 0, line_step_ = 0;
  int next_block_ = 0;
  std::map<float*, Block> blocks_;
};

/// Private buffers: copy in to two alternating slots a rank, reduce one part into a result slot and the own
/// buffer in one pass, copy out.
class Staged {
 public:
  Staged(const peers::Place& place, peers::Board& board);
  Run bind(std::size_t bytes, float* memory);

 private:
  struct Part {
    std::size_t from, to;
  };
  Part part(std::size_t length, int rank) const;
  void all_reduce(float* memory, std::size_t count);
  void copy_in(const float* chunk, std::size_t length, std::uint64_t step);
  void reduce(float* chunk, std::size_t length, std::uint64_t step);
  void copy_out(float* chunk, std::size_t length, std::uint64_t step);

  int rank_, world_, spins_;
  std::size_t slot_;  ///< Elements.
  SharedFile flags_, slots_;
  Flag *copied_, *reduced_;
  std::vector<float*> in_, result_;  ///< By rank; two slots each.
  std::uint64_t step_ = 0;
};

/// Two ranks over TCP on loopback, driven by the caller: halves are exchanged, each piece is reduced while it
/// is hot, and goes back at once. Each congestion control has a connection of its own, which began with it:
/// what bbr leaves on a connection (pacing) would slow its successor.
class Tcp {
 public:
  explicit Tcp(const peers::Place& place);
  ~Tcp();
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;
  /// With this congestion control from now on, on both ranks; false when this process may not have it.
  bool congestion(const std::string& name);
  Run bind(std::size_t bytes, float* memory);

 private:
  void whole(char* data, std::size_t bytes);
  void halves(char* data, std::size_t bytes);

  int rank_, socket_ = -1;
  std::string folder_;
  std::map<std::string, int> connections_;  ///< By congestion control.
  std::vector<char> piece_;
};

}  // namespace floors
