// Every algorithm's builder, for the table. What each does, and its cost, is at the head of its file, which
// lies in links/, hosts/ or domain/ and bears its name or that of its family.
#pragma once

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

// Over links.
Program all_reduce_ring(const Shape& shape);
Program all_reduce_direct(const Shape& shape);
Program all_reduce_reduce_broadcast(const Shape& shape);
Program all_reduce_recursive_doubling(const Shape& shape);
Program all_reduce_rabenseifner(const Shape& shape);
Program reduce_binomial(const Shape& shape);
Program reduce_ring(const Shape& shape);
Program reduce_direct(const Shape& shape);
Program broadcast_binomial(const Shape& shape);
Program broadcast_scatter_all_gather(const Shape& shape);
Program broadcast_chain(const Shape& shape);
Program broadcast_direct(const Shape& shape);
Program scatter_binomial(const Shape& shape);
Program scatter_direct(const Shape& shape);  ///< scatter, scatter_v
Program gather_binomial(const Shape& shape);
Program gather_direct(const Shape& shape);    ///< gather, gather_v
Program all_gather_ring(const Shape& shape);  ///< all_gather, all_gather_v
Program all_gather_bruck(const Shape& shape);
Program all_gather_direct(const Shape& shape);      ///< all_gather, all_gather_v
Program reduce_scatter_ring(const Shape& shape);    ///< reduce_scatter, reduce_scatter_v
Program reduce_scatter_direct(const Shape& shape);  ///< reduce_scatter, reduce_scatter_v
Program all_to_all_direct(const Shape& shape);      ///< all_to_all, all_to_all_v
Program all_to_all_bruck(const Shape& shape);
Program barrier_dissemination(const Shape& shape);

// Over links, for ranks that share hosts.
Program all_reduce_hierarchical(const Shape& shape);
Program all_reduce_leaders(const Shape& shape);
Program broadcast_hierarchical(const Shape& shape);
Program reduce_hierarchical(const Shape& shape);
Program all_gather_hierarchical(const Shape& shape);      ///< all_gather, all_gather_v
Program reduce_scatter_hierarchical(const Shape& shape);  ///< reduce_scatter, reduce_scatter_v
Program scatter_hierarchical(const Shape& shape);
Program gather_hierarchical(const Shape& shape);
Program all_to_all_hierarchical(const Shape& shape);
Program barrier_hierarchical(const Shape& shape);

// In a domain, through staging memory; fits_...: whether the staging area is large enough.
bool fits_one_shot(const Shape& shape);
bool fits_two_shot(const Shape& shape);
bool fits_pull_ring(const Shape& shape);
bool fits_piece(const Shape& shape);
bool fits_piece_per_rank(const Shape& shape);
Program all_reduce_one_shot(const Shape& shape);
Program all_reduce_pull_ring(const Shape& shape);
Program staged_two_shot(const Shape& shape);  ///< all_reduce, reduce
Program reduce_staged(const Shape& shape);
Program broadcast_staged(const Shape& shape);
Program scatter_staged(const Shape& shape);
Program gather_staged(const Shape& shape);          ///< gather, all_gather, all_gather_v
Program reduce_scatter_staged(const Shape& shape);  ///< reduce_scatter, reduce_scatter_v
Program all_to_all_staged(const Shape& shape);
Program barrier_flags(const Shape& shape);

// In a domain, on registered memory.
Program all_reduce_fused(const Shape& shape);
Program all_reduce_alone(const Shape& shape);
Program reduce_registered(const Shape& shape);
Program broadcast_registered(const Shape& shape);
Program broadcast_shared(const Shape& shape);
Program scatter_registered(const Shape& shape);
Program gather_registered(const Shape& shape);
Program all_gather_registered(const Shape& shape);      ///< all_gather, all_gather_v
Program reduce_scatter_registered(const Shape& shape);  ///< reduce_scatter, reduce_scatter_v
Program all_to_all_registered(const Shape& shape);

// In a domain, on memory that is only read; broadcast, scatter and all_to_all do no more when registered.
Program gather_pulled(const Shape& shape);
Program all_gather_pulled(const Shape& shape);  ///< all_gather, all_gather_v

}  // namespace lockstep::internal
