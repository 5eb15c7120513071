// Every program of the table is proved: for every world size 1 .. 64, every root (see kEveryRootEverySize),
// counts {0, 1, n-1, n, n+1, large odd}, whole and in segments or blocks, in place and out of place; and the
// programs of few steps for sampled world sizes up to 1024.
#include <limits>

#include "collectives/verify/verify.hpp"
#include "tests/programs/cases.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

// A sanitizer looks for errors of the verifier, for which small worlds do.
constexpr int kLargestWorld = lockstep::testing::kSanitized ? 20 : 64;
/// Up to here every root is tried with every size. Above, the roots 0, 1, the middle and the last one are,
/// and each of the others takes one size, in turn: a program depends on its root through rank - root alone,
/// so that roots differ only in where the ranks wrap round.
constexpr int kEveryRootEverySize = 20;
bool takes_every_size(int world, int root) {
  return world <= kEveryRootEverySize || root <= 1 || root == world / 2 || root == world - 1;
}

class Proof : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  void prove(const Shape& shape) {
    if (!GetParam()->supports(shape)) return;
    const std::string finding = verify_algorithm(*GetParam(), shape);
    ASSERT_EQ(finding, "") << name_of_case(shape);
    ++proved_;
  }
  int proved_ = 0;
};

TEST_P(Proof, ForEveryWorldRootAndSize) {
  const Algorithm& row = *GetParam();
  for (int world = 1; world <= kLargestWorld; ++world) {
    const std::vector<Size> sizes = sizes_for(world);
    const int roots = is_rooted(row.collective) ? world : 1;
    for (int root = 0; root < roots; ++root) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (!takes_every_size(world, root) && i != static_cast<std::size_t>(root) % sizes.size()) continue;
        ASSERT_NO_FATAL_FAILURE(prove(shape_of(row, world, root, sizes[i].count, sizes[i].pieces)));
      }
    }
  }
  EXPECT_GT(proved_, 0) << "the row supports none of these shapes";
}

/// So many segments that memory for some of them is used again and again.
TEST_P(Proof, OfManySegments) {
  for (int world = 1; world <= 9; ++world) {
    for (int root = 0; root < (is_rooted(GetParam()->collective) ? world : 1); ++root) {
      for (const std::uint64_t pieces : {9, 14})
        ASSERT_NO_FATAL_FAILURE(
            prove(shape_of(*GetParam(), world, root, 23 * static_cast<std::uint64_t>(world) + 2, pieces)));
    }
  }
}

/// There messages may be cut less.
TEST_P(Proof, OverLinksThatStream) {
  if (GetParam()->medium != Medium::links) return;
  for (int world = 1; world <= 9; ++world) {
    for (int root = 0; root < (is_rooted(GetParam()->collective) ? world : 1); ++root) {
      for (const std::uint64_t pieces : {1, 2, 5, 9}) {
        Shape shape = shape_of(*GetParam(), world, root, 23 * static_cast<std::uint64_t>(world) + 2, pieces);
        shape.streams = true;
        ASSERT_NO_FATAL_FAILURE(prove(shape));
      }
    }
  }
}

/// As if the user had asked for no cuts at all.
TEST_P(Proof, OfAbsurdSegments) {
  if (GetParam()->medium != Medium::links) return;
  for (int world = 1; world <= 8; ++world) {
    for (const bool streams : {false, true}) {
      Shape shape = shape_of(*GetParam(), world, 0, 23 * static_cast<std::uint64_t>(world) + 2, 1);
      shape.segment = std::numeric_limits<std::int64_t>::max() / 4;
      shape.streams = streams;
      ASSERT_NO_FATAL_FAILURE(prove(shape));
    }
  }
}

/// Blocks that are cut by the length of a segment, in staging areas that have room for few of them or for
/// all.
TEST_P(Proof, OfStagedSegments) {
  if (GetParam()->medium != Medium::domain_staged) return;
  for (int world = 1; world <= 9; ++world) {
    for (int root = 0; root < (is_rooted(GetParam()->collective) ? world : 1); ++root) {
      const std::uint64_t count = 23 * static_cast<std::uint64_t>(world) + 2;
      Shape shape = shape_of(*GetParam(), world, root, count, 1);
      for (const std::uint64_t pieces : {1, 2, 3, 4, 5, 9}) {
        shape.segment = count / pieces / 2 + 1;
        ASSERT_NO_FATAL_FAILURE(prove(shape));
        Shape narrow = shape;
        narrow.staging /= 2;
        ASSERT_NO_FATAL_FAILURE(prove(narrow));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Proof, ::testing::ValuesIn(every_row()), row_test_name);

/// Hosts of equal and of different sizes, in blocks and dealt round robin.
TEST(Hosts, EveryLayout) {
  const std::vector<std::vector<int>> layouts = {{0, 0, 1, 1},
                                                 {0, 0, 1, 2, 2, 2},
                                                 {0, 1, 0, 1, 0, 1},
                                                 {0, 1, 1, 0, 2, 1, 0},
                                                 {0, 0, 0, 1, 1, 1},
                                                 {0, 0, 1, 1, 2, 2, 3, 3},
                                                 {0, 1, 1},
                                                 {0, 0, 0, 0, 1},
                                                 {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}};
  for (const Algorithm* row : every_row()) {
    if (!needs_hosts(*row) && !follows_hosts(*row)) continue;
    for (const auto& hosts : layouts) {
      const int world = static_cast<int>(hosts.size());
      for (const Size size : sizes_for(world)) {
        for (int root = 0; root < (is_rooted(row->collective) ? world : 1); ++root) {
          Shape shape = shape_of(*row, world, root, size.count, size.pieces);
          shape.hosts = hosts;
          // Several pieces of several segments.
          if (size.pieces > 1) shape.segment = size.count / (size.pieces * 8) + 1;
          if (!row->supports(shape)) continue;
          for (const bool streams : {false, true}) {
            shape.streams = streams;
            ASSERT_EQ(verify_algorithm(*row, shape), "") << name_of_row(*row) << ' ' << name_of_case(shape);
          }
        }
      }
    }
  }
}

/// What the messages of all ranks carry from host to host.
std::uint64_t elements_between_hosts(const Algorithm& row, Shape shape) {
  std::uint64_t crossing = 0;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
    for (const Lane& lane : row.build(shape).lanes) {
      for (const Step& step : lane.steps) {
        const bool crosses =
            step.kind == StepKind::send && shape.hosts[static_cast<std::size_t>(step.peer)] !=
                                               shape.hosts[static_cast<std::size_t>(shape.rank)];
        if (crosses) crossing += step.src.count;
      }
    }
  }
  return crossing;
}

TEST(Hosts, RingsEnterEveryHostOnce) {
  int rings = 0;
  for (const Algorithm* row : every_row()) {
    if (!follows_hosts(*row) || has_counts(row->collective)) continue;
    ++rings;
    Shape together = shape_of(*row, 6, 0, 600, 1), dealt = together;
    together.hosts = {0, 0, 1, 1, 2, 2};
    dealt.hosts = {0, 1, 2, 0, 1, 2};
    // The ring of reduce ends with a message from every rank to the root, whatever the order.
    EXPECT_EQ(elements_between_hosts(*row, dealt), elements_between_hosts(*row, together))
        << name_of_row(*row);
  }
  EXPECT_GT(rings, 0);
}

/// Programs whose length grows with log(world), or not at all, at world sizes far beyond what is tried
/// exhaustively.
TEST(LargeWorlds, ShortPrograms) {
  const std::pair<Collective, std::string_view> kShort[] = {
      {Collective::all_reduce, "recursive_doubling"},
      {Collective::all_reduce, "rabenseifner"},
      {Collective::all_reduce, "reduce_broadcast"},
      {Collective::reduce, "binomial"},
      {Collective::broadcast, "binomial"},
      {Collective::broadcast, "chain"},
      {Collective::scatter, "binomial"},
      {Collective::gather, "binomial"},
      {Collective::all_gather, "bruck"},
      {Collective::barrier, "dissemination"},
  };
  for (const auto& [collective, name] : kShort) {
    const auto row = find_algorithm(collective, Medium::links, name);
    ASSERT_TRUE(row.ok());
    for (const int world : {100, 255, 256, 257, 512, 1000, 1023, 1024}) {
      const Shape shape = shape_of(*row.value(), world, is_rooted(collective) ? world / 3 : 0, 5003, 2);
      ASSERT_EQ(verify_algorithm(*row.value(), shape), "")
          << name_of_row(*row.value()) << ' ' << name_of_case(shape);
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
