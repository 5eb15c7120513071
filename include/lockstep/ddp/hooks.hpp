// The communication hooks that come with the library: gradients that travel smaller. docs/compression.md
// compares them, with the bytes and the accuracy of each.
//
// Common to all:
// - Buckets of f32 are compressed; those of other types travel as they are. With one rank nothing is changed.
// - The result has equal bits on all ranks.
// - Infinities and NaN are never hidden: they reach all ranks, for the quantised types in their whole block.
// - Settings that make no sense are Error(invalid_argument) where the hook is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "lockstep/ddp/communication_hook.hpp"
#include "lockstep/export.hpp"
#include "lockstep/types.hpp"

namespace lockstep {

/// All_reduce in bf16 or f16: half the bytes. f16 has three more bits of precision and overflows above 65504;
/// averaged gradients are divided by the world size before they are rounded, so that their sum overflows no
/// earlier than they; without ReducerOptions::average it may. Name "bf16" or "f16".
LOCKSTEP_API std::shared_ptr<CommunicationHook> make_half_hook(DataType type = DataType::bf16);

struct QuantiseOptions {
  DataType type = DataType::i8;  ///< i8, f8e4m3 or f8e5m2.
  std::size_t block = 256;       ///< Elements that share an f32 scale: a multiple of 4, at most 65536.
  /// What rounding loses in one step is added to the next one's gradient (Seide et al. 2014; Karimireddy et
  /// al. 2019). Costs 8 bytes of memory an element: what was lost, and a copy for the step under way.
  bool error_feedback = true;
};
/// One byte an element and a scale a block: a quarter of the bytes. Two ranks exchange their buckets and add
/// them up; more of them exchange quantised parts, each rank adds one part up in f32 and spreads the sum,
/// quantised again. Name "i8 block 256 with error feedback".
LOCKSTEP_API std::shared_ptr<CommunicationHook> make_quantised_hook(const QuantiseOptions& options = {});

struct TopKOptions {
  double share = 0.01;  ///< Of a bucket's elements, in (0, 1]; at least one travels.
};
/// The elements of largest magnitude, as (index, value); the others are kept and added to the next step's
/// gradient (Aji and Heafield 2017). 8 bytes an element that travels; each rank receives those of all others,
/// so it pays while world size x share stays well below 1. Name "top_k 0.01".
LOCKSTEP_API std::shared_ptr<CommunicationHook> make_top_k_hook(const TopKOptions& options = {});

struct PowerSgdOptions {
  std::size_t rank = 4;           ///< Of the approximation, 1 to 256.
  std::uint64_t start_step = 10;  ///< The first step that is compressed, counted from 1; gradients of early
                                  ///< steps are approximated badly.
  double min_compression = 2;  ///< A matrix for which fewer bytes than this are saved travels as it is; >= 1.
  bool warm_start = true;      ///< Begin with the last step's factors; otherwise with random ones.
  bool error_feedback = true;  ///< What the approximation loses is added to the next step's gradient.
  std::uint64_t seed = 0;      ///< Of the first factors; without warm start of each step's, with its number.
};
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019): a gradient of m rows and n columns travels as m x rank and n x
/// rank numbers. A tensor of more dimensions is a matrix of shape[0] rows; vectors travel as they are. Wants
/// whole gradients. Name "powersgd rank 4 ...".
LOCKSTEP_API std::shared_ptr<CommunicationHook> make_power_sgd_hook(const PowerSgdOptions& options = {});

/// A hook by its short name, with default settings, for command lines: "bf16", "f16", "i8", "f8e4m3",
/// "f8e5m2", "top_k", "powersgd"; null for "none". Another name is Error(invalid_argument) that lists these.
LOCKSTEP_API std::shared_ptr<CommunicationHook> hook_by_name(std::string_view name);

}  // namespace lockstep
